#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "header.h"
#include "manifest.h"
#include "sha256.h"

enum { DIGITS = 9 }; /* of 256 MiB */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._+@=,~-", c) != NULL);
}

static bool is_name(const char *name, size_t length)
{
    if (length == 0 || length > NAME_BYTES || name[0] == '-')
        return false;
    if (name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')))
        return false;
    for (size_t i = 0; i < length; i++)
        if (!is_name_byte(name[i]))
            return false;
    return true;
}

static bool is_path(const char *path)
{
    unsigned char block[BLOCK_BYTES];
    if (strlen(path) > PATH_BYTES || strcasecmp(path, MANIFEST_NAME) == 0 ||
        !archive_header(path, 0, false, block))
        return false;
    for (;;) {
        size_t length = strcspn(path, "/");
        if (!is_name(path, length))
            return false;
        if (path[length] == '\0')
            return true;
        path += length + 1;
    }
}

/* `text` is one line, terminated: DIGEST SIZE x|- PATH */
static const char *parse_entry(char *text, struct entry *entry)
{
    if (strspn(text, "0123456789abcdef") != HEX || text[HEX] != ' ')
        return "a digest is not 64 hexadecimal characters";
    entry->digest = text;
    text += HEX + 1;

    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > DIGITS || (text[0] == '0' && digits > 1) || text[digits] != ' ')
        return "a size is not a plain number within bounds";
    entry->size = strtoull(text, NULL, 10);
    text += digits + 1;

    if ((text[0] != 'x' && text[0] != '-') || text[1] != ' ')
        return "a file is neither executable nor plain";
    entry->executable = text[0] == 'x';
    entry->path = text + 2;
    return is_path(entry->path) ? NULL : "a path is not allowed";
}

/* Order in which paths that differ in case only are equal, and what lies in a directory
 * follows the directory's own name. */
static int folded(char c)
{
    if (c == '/')
        return 1;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Steps over what two paths have in common. */
static void skip_common(const char **a, const char **b)
{
    while (**a != '\0' && folded(**a) == folded(**b))
        ++*a, ++*b;
}

static int compare_folded(const void *left, const void *right)
{
    const char *a = (*(const struct entry *const *)left)->path;
    const char *b = (*(const struct entry *const *)right)->path;
    skip_common(&a, &b);
    return folded(*a) - folded(*b);
}

static const char *check_clashes(const struct manifest *manifest)
{
    static const struct entry *sorted[MANIFEST_FILES];
    for (size_t i = 0; i < manifest->count; i++)
        sorted[i] = &manifest->entries[i];
    qsort(sorted, manifest->count, sizeof sorted[0], compare_folded);
    for (size_t i = 1; i < manifest->count; i++) {
        const char *a = sorted[i - 1]->path, *b = sorted[i]->path;
        skip_common(&a, &b);
        if (*a == '\0' && *b == '\0')
            return "two paths differ in case only";
        if (*a == '\0' && *b == '/')
            return "a path is a file and a directory";
    }
    return NULL;
}

static bool is_first_line(const char *line, const char *platform)
{
    static const char start[] = "stoilo-tree/1 verifier ";
    return strncmp(line, start, sizeof start - 1) == 0 &&
           strcmp(line + sizeof start - 1, platform) == 0;
}

/* Ends each line with NUL. Returns whether `text` is lines of text and nothing else. */
static bool split_lines(char *text, size_t size)
{
    if (size == 0 || text[size - 1] != '\n' || memchr(text, '\0', size) != NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        if (text[i] == '\n')
            text[i] = '\0';
    return true;
}

const char *manifest_parse(char *text, size_t size, const char *platform, struct manifest *out)
{
    uint64_t total = 0;
    out->count = 0;
    if (size > MANIFEST_BYTES || !split_lines(text, size))
        return "it is not lines of text within bounds";
    if (!is_first_line(text, platform))
        return "its first line is not that of a verifier for this platform";
    for (char *line = text + strlen(text) + 1; line < text + size; line += strlen(line) + 1) {
        if (out->count == MANIFEST_FILES)
            return "it lists too many files";
        struct entry *entry = &out->entries[out->count];
        const char *reason = parse_entry(line, entry);
        if (reason != NULL)
            return reason;
        if (out->count > 0 && strcmp(entry[-1].path, entry->path) >= 0)
            return "its paths are not in order";
        total += entry->size;
        if (total > MANIFEST_TOTAL)
            return "its files are too large together";
        out->count++;
    }
    return out->count == 0 ? "it lists no file" : check_clashes(out);
}

/* Returns the index of the first entry whose path is not below `path` in order. */
static size_t lower_bound(const struct manifest *manifest, const char *path)
{
    size_t low = 0, high = manifest->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(manifest->entries[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct entry *manifest_find(const struct manifest *manifest, const char *path)
{
    size_t at = lower_bound(manifest, path);
    bool found = at < manifest->count && strcmp(manifest->entries[at].path, path) == 0;
    return found ? &manifest->entries[at] : NULL;
}

bool manifest_has_directory(const struct manifest *manifest, const char *path)
{
    char below[PATH_BYTES + 2];
    size_t length = strlen(path);
    if (length >= PATH_BYTES)
        return false;
    memcpy(below, path, length);
    memcpy(below + length, "/", 2);
    size_t at = lower_bound(manifest, below);
    return at < manifest->count && strncmp(manifest->entries[at].path, below, length + 1) == 0;
}
