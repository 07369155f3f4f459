/* What the files of the launcher offer each other. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* failure.c: the only way out but the verifier. */

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

/* sha256.c: FIPS 180-4, with the processor's own instructions where it has them. */

enum { HEX = 64 };

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t size);
void sha256_end(struct sha256 *hash, char hex[HEX + 1]);
bool has_digest(const void *data, size_t size, const char *hex);

/* manifest.c: the list of a tree's files (stoilo-tree/1). Pure. */

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

/* archive.c: the verifier's archive, POSIX ustar in one form only. A header is not
 * interpreted: the manifest says what it must be, and it is compared. */

struct archive {
    int fd;
    uint64_t position;
};

/* Reads `<soft_link>PATH</soft_link>`, what BOINC leaves in a slot; returns PATH, or NULL. */
enum { SOFT_LINK_BYTES = 2048 };
char *soft_link_parse(char *text, size_t size);

/* Opens the archive `name`, or where it points to, and ends the program unless it is `size`
 * bytes with the digest `hex`. Nothing of it is interpreted before. */
struct archive archive_open(const char *name, uint64_t size, const char *hex);

/* Each returns NULL or a reason. The first member, the manifest, has at most MANIFEST_BYTES.
 * A member's bytes go to `output`, if that is not negative, before their digest is known. */
extern const char archive_unwritten[]; /* the reason when `output` fails; errno says why */
const char *archive_manifest(struct archive *archive, char *text, size_t *size);
const char *archive_member(struct archive *archive, const struct entry *entry, int output);
const char *archive_end(struct archive *archive);

/* Writes the one header of a member; false when the path does not fit the format. Pure. */
enum { BLOCK_BYTES = 512 };
bool archive_header(const char *path, uint64_t size, bool executable, unsigned char *block);

/* Writes all of it; false when that fails. */
bool write_all(int fd, const char *data, size_t size);

/* place.c: the volunteer's own directory, outside of what a project fills. */

struct place {
    char path[PATH_MAX];
    int fd;
};

/* Opens, and makes if need be, the directory of verifiers: beside BOINC's `slots` when this
 * is a slot, else below HOME. Ends the program unless it is private. */
void place_open(struct place *place);
bool is_private(int fd);                         /* this user's, closed to others */
const char *own_home(void);                      /* HOME, if it is a directory of this user */
void join(char path[PATH_MAX], const char *name); /* appends `/name` */

/* tree.c, unpack.c: an unpacked verifier on disk. They end the program on any fault. */

struct held { /* what this launcher was built for */
    const char *platform;
    const char *archive; /* digest */
    uint64_t archive_size;
    const char *tree; /* digest */
};

#define MANIFEST_NAME "MANIFEST"
enum { PROGRAM_MODE = 0700, FILE_MODE = 0600 }; /* nobody else's business */

/* Unpacks the archive `name`, unless it was already, and compares every file of the tree with
 * its manifest, whether it was unpacked just now or long ago. */
void tree_prepare(const struct place *place, const char *name, const struct held *held);

/* One launcher at a time unpacks in a place: into a directory with a temporary name, flushed,
 * then renamed. Removes what launchers left that were killed. */
void unpack_lock(const struct place *place);
void unpack(const struct place *place, const char *name, const struct held *held);
void unpack_unlock(void);

#endif
