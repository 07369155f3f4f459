#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "archive.h"
#include "failure.h"
#include "manifest.h"
#include "sha256.h"
#include "unpack.h"

#ifndef UNPACK_WAITS
#define UNPACK_WAITS 6000 /* five minutes */
#endif
enum { WAIT_MS = 50, RANDOM = 8, DEPTH = PATH_BYTES / 2 + 2 };

static const int DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
static const int NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

static int lock = -1;
static int beside = -1; /* the directory that holds what is being written */
static char unfinished[HEX + 2 * RANDOM + 8];

_Noreturn static void cannot_write(const char *path)
{
    FAIL(OURS, "STO-X008", "the verifier cannot be unpacked in ", path, " (", errno_name(),
         "); the disk may be full or read-only; make room, or make the directory writable");
}

void unpack_lock(const struct place *place)
{
    const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
    lock = openat(place->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0)
        cannot_write(place->path);
    for (int i = 0; i < UNPACK_WAITS; i++) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0)
            return;
        if (errno != EWOULDBLOCK && errno != EINTR)
            cannot_write(place->path);
        nanosleep(&pause, NULL);
    }
    FAIL(OURS, "STO-X008", "another launcher has been unpacking in ", place->path,
         " for five minutes; one at a time may; end that process, or wait and start again");
}

void unpack_unlock(void)
{
    close(lock);
    lock = -1;
}

/* Removes `name` and what is in it; follows no link. What cannot be removed stays. */
static void remove_tree(int directory, const char *name, int depth)
{
    struct dirent *entry;
    if (unlinkat(directory, name, 0) == 0 || depth == 0)
        return;
    int fd = openat(directory, name, DIRECTORY);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL)
        return;
    while ((entry = readdir(list)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree(fd, entry->d_name, depth - 1);
    closedir(list);
    (void)unlinkat(directory, name, AT_REMOVEDIR);
}

static void remove_unfinished(void)
{
    remove_tree(beside, unfinished, DEPTH);
}

/* Removes `.….tmp` of launchers that were killed: under the lock they are nobody's. */
static void remove_leftovers(const struct place *place)
{
    struct dirent *entry;
    DIR *list = fdopendir(openat(place->fd, ".", DIRECTORY));
    if (list == NULL)
        cannot_write(place->path);
    while ((entry = readdir(list)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' && length > 5 &&
            strcmp(entry->d_name + length - 4, ".tmp") == 0)
            remove_tree(dirfd(list), entry->d_name, DEPTH);
    }
    closedir(list);
}

/* Makes `.<digest>.<random>.tmp`. */
static int make_unfinished(const struct place *place, const char *digest)
{
    unsigned char random[RANDOM];
    char *to = unfinished;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        cannot_write(place->path);
    *to++ = '.';
    to = stpcpy(stpcpy(to, digest), ".");
    for (size_t i = 0; i < sizeof random; i++) {
        *to++ = "0123456789abcdef"[random[i] >> 4];
        *to++ = "0123456789abcdef"[random[i] & 15];
    }
    strcpy(to, ".tmp");
    if (mkdirat(place->fd, unfinished, 0700) != 0)
        cannot_write(place->path);
    beside = place->fd;
    before_failing = remove_unfinished;
    return openat(place->fd, unfinished, DIRECTORY);
}

/* Opens the directory that is to hold `path`, making it and those above it, and leaves the
 * last name in `name`. */
static int open_parent(int tree, const char *path, const char **name)
{
    char part[NAME_BYTES + 1];
    int at = dup(tree);
    for (const char *slash; at >= 0 && (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = '\0';
        if (mkdirat(at, part, 0700) != 0 && errno != EEXIST)
            return -1;
        int next = openat(at, part, DIRECTORY);
        close(at);
        at = next;
    }
    *name = path;
    return at;
}

/* Flushes a new file, with the mode it will be checked for, and closes it. */
static bool finish_file(int fd, bool executable)
{
    bool good = fchmod(fd, executable ? PROGRAM_MODE : FILE_MODE) == 0 && fsync(fd) == 0;
    return close(fd) == 0 && good;
}

_Noreturn static void refuse_archive(const char *reason)
{
    FAIL(UNVERIFIED, "STO-F052", "the verifier's archive cannot be unpacked: ", reason,
         "; it changed while it was read, or this launcher was built for a broken one; start "
         "again, and if it stays, tell the project");
}

static void write_file(struct archive *archive, int tree, const struct entry *entry,
                       const char *where)
{
    const char *name;
    int parent = open_parent(tree, entry->path, &name);
    int fd = parent < 0 ? -1 : openat(parent, name, NEW, 0600);
    if (fd < 0)
        cannot_write(where);
    const char *reason = archive_member(archive, entry, fd);
    if (reason != NULL && reason != archive_unwritten)
        refuse_archive(reason);
    if (reason != NULL || !finish_file(fd, entry->executable))
        cannot_write(where);
    close(parent);
}

static void write_manifest(int tree, const char *text, size_t size, const char *where)
{
    int fd = openat(tree, MANIFEST_NAME, NEW, 0600);
    if (fd < 0 || !write_all(fd, text, size) || !finish_file(fd, false))
        cannot_write(where);
}

/* Flushes a directory and those below it: names are durable before the tree has its own. */
static bool flush_directories(int fd)
{
    struct dirent *entry;
    bool good = fsync(fd) == 0;
    DIR *list = fdopendir(fd);
    while (good && list != NULL && (errno = 0, entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int below = openat(fd, entry->d_name, DIRECTORY);
        good = below >= 0 ? flush_directories(below) : errno == ENOTDIR || errno == ELOOP;
    }
    good = good && list != NULL && errno == 0;
    if (list != NULL)
        closedir(list);
    return good;
}

void unpack(const struct place *place, const char *name, const struct held *held)
{
    static char text[MANIFEST_BYTES + 1];
    static struct manifest manifest;
    size_t size = 0;
    struct archive archive = archive_open(name, held->archive_size, held->archive);

    remove_leftovers(place);
    const char *reason = archive_manifest(&archive, text, &size);
    if (reason != NULL)
        refuse_archive(reason);
    if (!has_digest(text, size, held->tree))
        refuse_archive("its manifest is not the one that this launcher holds");
    int tree = make_unfinished(place, held->tree);
    if (tree < 0)
        cannot_write(place->path);
    write_manifest(tree, text, size, place->path);
    reason = manifest_parse(text, size, held->platform, &manifest);
    if (reason != NULL)
        refuse_archive(reason);
    for (size_t i = 0; i < manifest.count; i++)
        write_file(&archive, tree, &manifest.entries[i], place->path);
    reason = archive_end(&archive);
    if (reason != NULL)
        refuse_archive(reason);
    if (!flush_directories(tree) || renameat(place->fd, unfinished, place->fd, held->tree) != 0)
        cannot_write(place->path);
    before_failing = NULL;
    if (fsync(place->fd) != 0)
        cannot_write(place->path);
    close(archive.fd);
}
