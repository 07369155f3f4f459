/* The list of a tree's files (stoilo-tree/1). Pure. */
#ifndef MANIFEST_H
#define MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_NAME "MANIFEST"

enum {
    MANIFEST_BYTES = 1 << 20,
    MANIFEST_FILES = 4096,
    MANIFEST_TOTAL = 256 << 20, /* bytes of all files together */
    PATH_BYTES = 240,
    NAME_BYTES = 128,
};

struct entry {
    const char *digest; /* HEX characters, not terminated */
    const char *path;   /* relative */
    uint64_t size;
    bool executable;
};

struct manifest {
    size_t count;
    struct entry entries[MANIFEST_FILES]; /* sorted by path, bytewise */
};

/* Reads untrusted text for the part "verifier" of `platform`. The entries point into `text`,
 * whose ends of line become NUL. Returns NULL, or the reason of the refusal. */
const char *manifest_parse(char *text, size_t size, const char *platform, struct manifest *out);
const struct entry *manifest_find(const struct manifest *manifest, const char *path);
bool manifest_has_directory(const struct manifest *manifest, const char *path);

#endif
