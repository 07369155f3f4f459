#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "place.h"

static const int DIRECTORY = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

void join(char path[PATH_MAX], const char *name)
{
    size_t length = strlen(path), more = strlen(name);
    if (length + more + 2 > PATH_MAX)
        FAIL(OURS, "STO-F037", "the path ", path,
             " is too long; the system takes 4,095 bytes; move BOINC's data directory to a "
             "shorter path");
    path[length] = '/';
    memcpy(path + length + 1, name, more + 1);
}

bool is_private(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

const char *own_home(void)
{
    struct stat status;
    const char *home = getenv("HOME");
    if (home == NULL || home[0] != '/' || strlen(home) >= PATH_MAX / 2)
        return NULL;
    bool own = stat(home, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
    return own ? home : NULL;
}

/* Cuts `<data>/slots/<digits>` to `<data>`. */
static bool cut_slot(char *path)
{
    char *slot = strrchr(path, '/');
    if (slot == NULL || slot[1] == '\0' || slot[1 + strspn(slot + 1, "0123456789")] != '\0')
        return false;
    *slot = '\0';
    char *slots = strrchr(path, '/');
    if (slots == NULL || strcmp(slots, "/slots") != 0)
        return false;
    *slots = '\0';
    return true;
}

/* Opens `path` itself, which lies above what this program keeps private. */
static void begin(struct place *place)
{
    place->fd = open(place->path[0] != '\0' ? place->path : "/", DIRECTORY);
    if (place->fd < 0)
        FAIL(OURS, "STO-F037", "the directory ", place->path, " cannot be opened (", errno_name(),
             "); verifiers are kept in it; make it usable for this user");
}

/* Makes the directory `name` in the present one, if it is missing, and steps into it. */
static void step(struct place *place, const char *name)
{
    int fd = -1;
    join(place->path, name);
    if (mkdirat(place->fd, name, 0700) == 0 || errno == EEXIST)
        fd = openat(place->fd, name, DIRECTORY | O_NOFOLLOW);
    if (fd < 0)
        FAIL(OURS, "STO-F037", "the directory ", place->path, " cannot be used (", errno_name(),
             "); verifiers are kept there, outside of what projects write; make it a writable "
             "directory of this user, and no link");
    if (!is_private(fd))
        FAIL(OURS, "STO-F037", "the directory ", place->path,
             " is open to others; whoever writes there chooses what runs here; give it to this "
             "user with chown, and chmod it 700");
    close(place->fd);
    place->fd = fd;
}

static void begin_in_home(struct place *place)
{
    const char *home = own_home();
    if (home == NULL)
        FAIL(OURS, "STO-F037",
             "this is no slot of BOINC, and HOME is no directory of this user; verifiers are kept "
             "in one of the two; set HOME");
    strcpy(place->path, home);
    join(place->path, ".local");
    (void)mkdir(place->path, 0700); /* whether it is there shows when it is opened */
    join(place->path, "share");
    (void)mkdir(place->path, 0700);
    begin(place);
}

void place_open(struct place *place)
{
    if (getcwd(place->path, sizeof place->path) == NULL)
        FAIL(OURS, "STO-F037", "the working directory has no path (", errno_name(),
             "); verifiers are kept beside it; start this program in a directory that exists");
    if (cut_slot(place->path))
        begin(place);
    else
        begin_in_home(place);
    step(place, "stoilo");
    step(place, "verifier");
}
