/* The verifier's archive. A header is not interpreted: the manifest says what it must be,
 * and it is compared. */
#ifndef ARCHIVE_H
#define ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "manifest.h"

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

#endif
