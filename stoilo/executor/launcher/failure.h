/* The only way out but the verifier. */
#ifndef FAILURE_H
#define FAILURE_H

#include <stdbool.h>
#include <stddef.h>

enum blame {
    OURS = 1,       /* this machine or this program: no room, no rights, a wrong start */
    UNVERIFIED = 4, /* bytes are not what this launcher holds: nothing of them was run */
};

/* Called once before the end, to remove what was half written. */
extern void (*before_failing)(void);

/* Writes `stoilo-launcher: CODE parts…` as one line to stderr and exits with `blame`. The
 * parts say what happened; why; what next. Bytes that a terminal could obey become `?`. */
#define FAIL(blame, code, ...) fail(blame, code, (const char *const[]){__VA_ARGS__, NULL})
_Noreturn void fail(enum blame blame, const char *code, const char *const *parts);

/* Name of errno, `ENOSPC`: no table of translated texts is ever looked for. */
const char *errno_name(void);

/* Writes all of it; false when that fails. */
bool write_all(int fd, const char *data, size_t size);

#endif
