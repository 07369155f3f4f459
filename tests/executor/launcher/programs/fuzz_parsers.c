/* Feeds the launcher's parsers mutated bytes, and checks what they let through.
 *
 *     fuzz_parsers SEED ROUNDS ARCHIVE     ROUNDS mutations of an honest archive; 0: for ever
 *
 * Built with sanitizers, which stop it at the first bad access; a broken promise stops it too.
 * With -DLIBFUZZER it has no main, and clang's -fsanitize=fuzzer drives it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archive.h"
#include "failure.h"
#include "header.h"
#include "sha256.h"

#ifndef PLATFORM
#define PLATFORM "x86_64-linux"
#endif

static unsigned long accepted, refused;

static void promise(bool kept, const char *what)
{
    if (!kept) {
        fprintf(stderr, "broken promise: %s\n", what);
        abort();
    }
}

/* What no accepted path may be, said again in other words than the parser's. */
static void check_path(const char *path)
{
    char around[300];
    promise(strlen(path) <= 240, "a path is long");
    snprintf(around, sizeof around, "/%s/", path);
    promise(strstr(around, "/../") == NULL, "a path climbs");
    promise(strstr(around, "/./") == NULL, "a path has a dot");
    promise(strstr(around, "//") == NULL, "a path has an empty name");
    promise(strstr(around, "/-") == NULL, "a path looks like an option");
    promise(strcasecmp(path, "MANIFEST") != 0, "a path is the manifest's");
    for (const char *c = path; *c != '\0'; c++)
        promise(isascii(*c) && (isalnum(*c) || strchr("/._+@=,~-", *c)), "a path has odd bytes");
}

/* Whether two entries clash on a file system without upper and lower case. */
static void check_clash(const struct manifest *found, size_t i)
{
    for (size_t j = 0; j < i && i < 50; j++)
        promise(strcasecmp(found->entries[i].path, found->entries[j].path) != 0,
                "two paths differ in case only");
}

static bool is_zero(const unsigned char *data, size_t size)
{
    while (size > 0 && *data == 0)
        data++, size--;
    return size == 0;
}

/* Writes the manifest that `found` was read from. */
static size_t render(const struct manifest *found, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "stoilo-tree/1 verifier %s\n", PLATFORM);
    for (size_t i = 0; i < found->count; i++) {
        const struct entry *one = &found->entries[i];
        at += (size_t)snprintf(out + at, room - at, "%.64s %llu %c %s\n", one->digest,
                               (unsigned long long)one->size, one->executable ? 'x' : '-',
                               one->path);
    }
    return at;
}

static void try_manifest(const unsigned char *data, size_t size)
{
    static struct manifest found;
    char *text = malloc(size > 0 ? size : 1); /* exactly as large: sanitizers see one byte more */
    memcpy(text, data, size);
    if (manifest_parse(text, size, PLATFORM, &found) != NULL) {
        refused++;
    } else {
        char *again = malloc(size + 1);
        promise(render(&found, again, size + 1) == size, "a manifest reads as another");
        promise(memcmp(again, data, size) == 0, "a manifest reads as another");
        free(again);
        for (size_t i = 0; i < found.count; i++) {
            const struct entry *one = &found.entries[i];
            check_path(one->path);
            check_clash(&found, i);
            promise(i == 0 || strcmp(one[-1].path, one->path) < 0, "paths are not in order");
            promise(!manifest_has_directory(&found, one->path), "a file is a directory");
            promise(manifest_find(&found, one->path) == one, "a path is not found");
        }
        accepted++;
    }
    free(text);
}

static void try_soft_link(const unsigned char *data, size_t size)
{
    char *text = malloc(size > 0 ? size : 1);
    memcpy(text, data, size);
    const char *path = soft_link_parse(text, size);
    if (path != NULL) {
        promise(strlen(path) > 0 && strlen(path) < size, "a path in a link has no bounds");
        promise(strpbrk(path, "<>\n") == NULL, "a path in a link has odd bytes");
        accepted++;
    } else {
        refused++;
    }
    free(text);
}

/* Whatever is let through is byte for byte the one archive of its manifest. */
static void try_archive(const unsigned char *data, size_t size)
{
    static char text[MANIFEST_BYTES];
    static struct manifest found;
    struct archive archive = {.fd = memfd_create("archive", 0)};
    size_t length = 0, at = 0;
    promise(archive.fd >= 0 && write_all(archive.fd, (const char *)data, size), "no memory");
    const char *reason = archive_manifest(&archive, text, &length);
    if (reason == NULL)
        reason = manifest_parse(text, length, PLATFORM, &found);
    for (size_t i = 0; reason == NULL && i < found.count; i++)
        reason = archive_member(&archive, &found.entries[i], -1);
    if (reason == NULL)
        reason = archive_end(&archive);
    close(archive.fd);
    if (reason != NULL) {
        refused++;
        return;
    }
    at = 512 + (length + 511) / 512 * 512;
    for (size_t i = 0; i < found.count; i++) {
        const struct entry *one = &found.entries[i];
        unsigned char header[512];
        promise(archive_header(one->path, one->size, one->executable, header), "no header");
        promise(memcmp(data + at, header, 512) == 0, "a header is another");
        at += 512;
        promise(has_digest(data + at, one->size, one->digest), "a file is another");
        promise(is_zero(data + at + one->size, (512 - one->size % 512) % 512), "padding");
        at += (one->size + 511) / 512 * 512;
    }
    promise(at + 1024 == size && is_zero(data + at, 1024), "an archive has another end");
    accepted++;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (data[0] % 3) {
    case 0: try_manifest(data + 1, size - 1); break;
    case 1: try_soft_link(data + 1, size - 1); break;
    default: try_archive(data + 1, size - 1); break;
    }
    return 0;
}

#ifndef LIBFUZZER
enum { MOST = 1 << 20 };
static unsigned long state;

static unsigned long roll(unsigned long below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return below == 0 ? 0 : state % below;
}

/* Changes, removes, doubles or moves a few bytes or a line; returns the new size. */
static size_t mutate(unsigned char *data, size_t size)
{
    static const char odd[] = "\0\n /.-x0129aAfF<>~\x80\xff";
    size_t at = roll(size + 1), length = roll(roll(4) == 0 ? size : 20) + 1;
    if (length > size - at)
        length = size - at;
    switch (roll(7)) {
    case 0:
        if (at < size)
            data[at] ^= (unsigned char)(1u << roll(8));
        return size;
    case 1:
        if (at < size)
            data[at] = (unsigned char)odd[roll(sizeof odd - 1)];
        return size;
    case 2: { /* the last letter of some line */
        unsigned char *end = memchr(data + at, '\n', size - at);
        if (end != NULL && end > data)
            end[-1] ^= (unsigned char)(1u << roll(8));
        return size;
    }
    case 3: /* cut out */
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    case 4: /* double */
        if (size + length > MOST)
            return size;
        memmove(data + at + length, data + at, size - at);
        return size + length;
    case 5: /* copy elsewhere */
        memmove(data + roll(size - length + 1), data + at, length);
        return size;
    default:
        return roll(8) == 0 ? at : size;
    }
}

static size_t read_file(const char *path, unsigned char *out)
{
    int fd = open(path, O_RDONLY);
    ssize_t size = fd < 0 ? -1 : read(fd, out, MOST);
    promise(size > 0, "no honest archive to begin with");
    close(fd);
    return (size_t)size;
}

/* Begins with something honest of the kind, and spoils it. */
static size_t make_input(unsigned char *out, const unsigned char *archive, size_t size)
{
    static const char link[] = "<soft_link>../../projects/p/stoilo-verifier.tar</soft_link>\n";
    size_t length = strtoul((const char *)archive + 124, NULL, 8);
    switch (roll(3)) {
    case 0:
        memcpy(out, archive + 512, length);
        return length;
    case 1:
        memcpy(out, link, sizeof link - 1);
        return sizeof link - 1;
    default:
        memcpy(out, archive, size);
        return size;
    }
}

int main(int count, char **words)
{
    static unsigned char archive[MOST], input[2 * MOST];
    promise(count == 4, "SEED ROUNDS ARCHIVE");
    state = strtoul(words[1], NULL, 10) * 2654435761u + 1;
    unsigned long rounds = strtoul(words[2], NULL, 10);
    size_t size = read_file(words[3], archive);
    for (unsigned long i = 0; rounds == 0 || i < rounds; i++) {
        size_t made = make_input(input, archive, size);
        for (unsigned long changes = roll(4); changes > 0; changes--)
            made = mutate(input, made);
        try_manifest(input, made);
        try_soft_link(input, made);
        try_archive(input, made);
    }
    printf("%lu accepted, %lu refused\n", accepted, refused);
    return 0;
}
#endif
