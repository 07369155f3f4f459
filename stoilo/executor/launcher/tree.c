#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "manifest.h"
#include "sha256.h"
#include "tree.h"

static const int DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
static const int PLAIN = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

static struct manifest manifest;
static bool seen[MANIFEST_FILES];
static char tree_path[PATH_MAX]; /* for messages */

_Noreturn static void refuse(const char *name, const char *what)
{
    FAIL(UNVERIFIED, "STO-F006", "the unpacked verifier ", tree_path, " was changed: ", name, " ",
         what, "; it is not run; find out who changed it, delete the directory and start again");
}

/* A call failed on `name`: what says that somebody changed the tree is told from what says
 * that this machine is in trouble (no descriptors, no memory, a bad disk). */
_Noreturn static void refuse_call(const char *name, const char *what)
{
    if (errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == EACCES ||
        errno == EPERM || errno == ENXIO)
        refuse(name, errno == ENOENT ? "is missing" : what);
    FAIL(OURS, "STO-F037", "the unpacked verifier ", tree_path, " cannot be read (", errno_name(),
         " at ", name, "); it is not run; let this user open more files, or look after the disk");
}

/* Opens a file of this user that has one name only, and returns its size. */
static int open_plain(int directory, const char *name, const char *path, mode_t mode,
                      uint64_t *size)
{
    struct stat status;
    int fd = openat(directory, name, PLAIN);
    if (fd < 0 || fstat(fd, &status) != 0)
        refuse_call(path, "is a link, or closed to this user");
    if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
        refuse(path, "is not a file of its own");
    if (status.st_uid != geteuid() || (status.st_mode & 07777) != mode)
        refuse(path, "has another owner or mode");
    *size = (uint64_t)status.st_size;
    return fd;
}

/* Returns how many bytes came, at most `size`. */
static size_t read_some(int fd, char *out, size_t size, const char *path)
{
    for (;;) {
        ssize_t now = read(fd, out, size);
        if (now >= 0)
            return (size_t)now;
        if (errno != EINTR)
            refuse_call(path, "cannot be read");
    }
}

static void check_file(int directory, const char *name, const struct entry *entry)
{
    static char chunk[256 << 10];
    char hex[HEX + 1];
    struct sha256 hash;
    uint64_t size;
    size_t now;
    const mode_t mode = entry->executable ? PROGRAM_MODE : FILE_MODE;
    int fd = open_plain(directory, name, entry->path, mode, &size);
    if (size != entry->size)
        refuse(entry->path, "has another size");
    sha256_begin(&hash);
    while ((now = read_some(fd, chunk, sizeof chunk, entry->path)) > 0)
        sha256_add(&hash, chunk, now);
    sha256_end(&hash, hex);
    close(fd);
    if (memcmp(hex, entry->digest, HEX) != 0)
        refuse(entry->path, "has other bytes");
    seen[entry - manifest.entries] = true;
}

static void check_directory(int fd, char path[PATH_MAX]);

/* `path` is that of an entry of a directory, below the tree. */
static void check_entry(int directory, const char *name, char path[PATH_MAX])
{
    const struct entry *entry = manifest_find(&manifest, path);
    if (entry != NULL) {
        check_file(directory, name, entry);
        return;
    }
    if (!manifest_has_directory(&manifest, path))
        refuse(path, "does not belong to it");
    int fd = openat(directory, name, DIRECTORY);
    if (fd < 0)
        refuse_call(path, "is not a directory of its own");
    check_directory(fd, path);
}

/* Compares what lies in a directory with the manifest; no deeper than its paths go. */
static void check_directory(int fd, char path[PATH_MAX])
{
    size_t length = strlen(path);
    struct dirent *entry;
    if (!is_private(fd))
        refuse(path, "is open to others");
    DIR *list = fdopendir(fd);
    if (list == NULL)
        refuse_call(path, "cannot be listed");
    while ((errno = 0, entry = readdir(list)) != NULL) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (length == 0 && strcmp(name, MANIFEST_NAME) == 0)
            continue; /* read already */
        if (length + strlen(name) > PATH_BYTES)
            refuse(name, "does not belong to it");
        if (length > 0)
            path[length] = '/';
        strcpy(path + length + (length > 0), name);
        check_entry(fd, name, path);
        path[length] = '\0';
    }
    if (errno != 0)
        refuse_call(path, "cannot be listed");
    closedir(list);
}

/* Reads the tree's own manifest, which is right when its digest is. */
static void read_manifest(int tree, const struct held *held)
{
    static char text[MANIFEST_BYTES + 1];
    uint64_t size;
    size_t filled = 0, now;
    int fd = open_plain(tree, MANIFEST_NAME, MANIFEST_NAME, FILE_MODE, &size);
    while (filled < sizeof text &&
           (now = read_some(fd, text + filled, sizeof text - filled, MANIFEST_NAME)) > 0)
        filled += now;
    close(fd);
    if (!has_digest(text, filled, held->tree))
        refuse(MANIFEST_NAME, "has other bytes");
    const char *reason = manifest_parse(text, filled, held->platform, &manifest);
    if (reason != NULL)
        FAIL(UNVERIFIED, "STO-F052", "the list of the verifier's files is malformed: ", reason,
             "; this launcher was built for a broken verifier; tell the project");
}

static void check_tree(int tree, const struct held *held)
{
    char path[PATH_MAX] = "";
    read_manifest(tree, held);
    check_directory(tree, path);
    for (size_t i = 0; i < manifest.count; i++)
        if (!seen[i])
            refuse(manifest.entries[i].path, "is missing");
}

static int open_tree(const struct place *place, const struct held *held)
{
    int tree = openat(place->fd, held->tree, DIRECTORY);
    if (tree < 0 && errno != ENOENT)
        refuse_call("the directory itself", "is a link, or closed to this user");
    return tree;
}

void tree_prepare(const struct place *place, const char *name, const struct held *held)
{
    strcpy(tree_path, place->path);
    join(tree_path, held->tree);
    int tree = open_tree(place, held);
    if (tree < 0) {
        unpack_lock(place);
        tree = open_tree(place, held);
        if (tree < 0) {
            unpack(place, name, held);
            tree = open_tree(place, held);
        }
        unpack_unlock();
    }
    if (tree < 0)
        refuse("the directory itself", "is gone");
    check_tree(tree, held);
}
