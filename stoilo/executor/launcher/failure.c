#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"

bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t now = write(fd, data, size);
        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return false;
        data += now, size -= (size_t)now;
    }
    return true;
}

void (*before_failing)(void);

static char line[8192];
static size_t filled;

static void add(const char *text)
{
    for (; *text != '\0' && filled < sizeof line - 1; text++)
        line[filled++] = *text >= ' ' && *text <= '~' ? *text : '?';
}

_Noreturn void fail(enum blame blame, const char *code, const char *const *parts)
{
    add("stoilo-launcher: ");
    add(code);
    add(" ");
    for (; *parts != NULL; parts++)
        add(*parts);
    line[filled++] = '\n';
    (void)signal(SIGPIPE, SIG_IGN);
    (void)write_all(STDERR_FILENO, line, filled); /* the exit status says it too */
    if (before_failing != NULL)
        before_failing();
    _exit((int)blame);
}

const char *errno_name(void)
{
    const char *name = strerrorname_np(errno);
    return name != NULL ? name : "an unnamed error";
}
