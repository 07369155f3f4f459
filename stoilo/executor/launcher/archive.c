#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive.h"
#include "failure.h"
#include "header.h"
#include "sha256.h"

enum { BLOCK = BLOCK_BYTES, CHUNK = 256 << 10 };

#define AGAIN "; reset the project in BOINC, so that it is fetched again"
static const char CUT_SHORT[] = "it ends too early";
static const char UNREADABLE[] = "it cannot be read";
const char archive_unwritten[] = "the disk did not take it";

/* Reads exactly `size` bytes. */
static const char *take(struct archive *archive, void *out, size_t size)
{
    char *to = out;
    while (size > 0) {
        ssize_t now = pread(archive->fd, to, size, (off_t)archive->position);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return UNREADABLE;
        if (now == 0)
            return CUT_SHORT;
        to += now, size -= (size_t)now, archive->position += (uint64_t)now;
    }
    return NULL;
}

char *soft_link_parse(char *text, size_t size)
{
    static const char opening[] = "<soft_link>", closing[] = "</soft_link>";
    const size_t start = sizeof opening - 1, stop = sizeof closing - 1;
    if (size > 0 && text[size - 1] == '\n')
        size--;
    if (size > SOFT_LINK_BYTES || size <= start + stop || memcmp(text, opening, start) != 0 ||
        memcmp(text + size - stop, closing, stop) != 0)
        return NULL;
    for (size_t i = start; i < size - stop; i++)
        if (text[i] == '<' || text[i] == '>' || (unsigned char)text[i] < ' ')
            return NULL;
    text[size - stop] = '\0';
    return text + start;
}

/* Opens a regular file; waits for no other kind of file, and follows no link. */
static int open_regular(const char *path, uint64_t *size)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno != ELOOP)
        FAIL(OURS, "STO-F052", "there is no verifier at ", path, " (", errno_name(),
             "); the project sends one with this program" AGAIN);
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        FAIL(UNVERIFIED, "STO-F052", "the verifier at ", path,
             " is not a regular file; nothing else is read" AGAIN);
    *size = (uint64_t)status.st_size;
    return fd;
}

/* Returns the path in a small file. It may lead anywhere, for the digest decides. */
static const char *read_soft_link(int fd)
{
    static char text[SOFT_LINK_BYTES + 2];
    ssize_t size = pread(fd, text, SOFT_LINK_BYTES + 1, 0);
    const char *path = size < 0 ? NULL : soft_link_parse(text, (size_t)size);
    if (path == NULL)
        FAIL(UNVERIFIED, "STO-F052",
             "the verifier's file is neither its archive nor BOINC's text "
             "<soft_link>PATH</soft_link>; nothing else is read" AGAIN);
    close(fd);
    return path;
}

static bool is_held(int fd, uint64_t size, const char *hex)
{
    static char chunk[CHUNK];
    char found[HEX + 1];
    struct sha256 hash;
    struct archive archive = {.fd = fd};
    sha256_begin(&hash);
    while (size > 0) {
        size_t now = size < CHUNK ? (size_t)size : CHUNK;
        const char *reason = take(&archive, chunk, now);
        if (reason == UNREADABLE)
            FAIL(OURS, "STO-F052", "the verifier cannot be read (", errno_name(),
                 "); the disk may be damaged" AGAIN);
        if (reason != NULL)
            return false;
        sha256_add(&hash, chunk, now);
        size -= now;
    }
    sha256_end(&hash, found);
    return strcmp(found, hex) == 0;
}

struct archive archive_open(const char *name, uint64_t size, const char *hex)
{
    uint64_t found;
    int fd = open_regular(name, &found);
    if (found != size && found <= SOFT_LINK_BYTES) {
        name = read_soft_link(fd);
        fd = open_regular(name, &found);
    }
    if (found != size || !is_held(fd, size, hex))
        FAIL(UNVERIFIED, "STO-F052", "the verifier at ", name,
             " is not the one that this launcher was signed for; it was swapped, changed or cut "
             "short" AGAIN);
    return (struct archive){.fd = fd};
}

static bool is_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* The rest of the last block of a member. */
static const char *take_padding(struct archive *archive, uint64_t size)
{
    char rest[BLOCK];
    size_t length = (size_t)((BLOCK - size % BLOCK) % BLOCK);
    const char *reason = take(archive, rest, length);
    if (reason != NULL)
        return reason;
    return is_zero(rest, length) ? NULL : "there are bytes between two files";
}

static bool read_octal(const unsigned char *field, size_t digits, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < digits; i++) {
        if (field[i] < '0' || field[i] > '7')
            return false;
        *value = *value << 3 | (uint64_t)(field[i] - '0');
    }
    return true;
}

const char *archive_manifest(struct archive *archive, char *text, size_t *size)
{
    unsigned char found[BLOCK], right[BLOCK];
    uint64_t length;
    const char *reason = take(archive, found, BLOCK);
    if (reason != NULL)
        return reason;
    if (!read_octal(found + 124, 11, &length) || length == 0 || length > MANIFEST_BYTES)
        return "the size of its manifest is not within bounds";
    if (!archive_header("MANIFEST", length, false, right) || memcmp(found, right, BLOCK) != 0)
        return "its first member is not a manifest";
    *size = (size_t)length;
    reason = take(archive, text, *size);
    return reason != NULL ? reason : take_padding(archive, length);
}

const char *archive_member(struct archive *archive, const struct entry *entry, int output)
{
    static char chunk[CHUNK];
    unsigned char found[BLOCK], right[BLOCK];
    char hex[HEX + 1];
    struct sha256 hash;
    const char *reason = take(archive, found, BLOCK);
    if (reason != NULL)
        return reason;
    if (!archive_header(entry->path, entry->size, entry->executable, right))
        return "a path does not fit its format";
    if (memcmp(found, right, BLOCK) != 0)
        return "a member is not the one that the manifest lists";
    sha256_begin(&hash);
    for (uint64_t left = entry->size; left > 0;) {
        size_t now = left < CHUNK ? (size_t)left : CHUNK;
        reason = take(archive, chunk, now);
        if (reason != NULL)
            return reason;
        sha256_add(&hash, chunk, now);
        if (output >= 0 && !write_all(output, chunk, now))
            return archive_unwritten;
        left -= now;
    }
    sha256_end(&hash, hex);
    if (memcmp(hex, entry->digest, HEX) != 0)
        return "a file is not the one that the manifest lists";
    return take_padding(archive, entry->size);
}

const char *archive_end(struct archive *archive)
{
    char last[2 * BLOCK], beyond;
    const char *reason = take(archive, last, sizeof last);
    if (reason != NULL)
        return reason;
    if (!is_zero(last, sizeof last))
        return "it does not end where the manifest ends";
    return take(archive, &beyond, 1) == CUT_SHORT ? NULL : "there are bytes after its end";
}
