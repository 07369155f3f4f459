/* The program that a BOINC project has signed, and the only one that BOINC starts: it makes
 * the verifier that it was built for run, with nothing of what the client or a project left
 * in environment, descriptors and arguments. See docs/explanation/launcher.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "held.h"
#include "place.h"
#include "tree.h"

#define ARCHIVE "stoilo-verifier.tar"
#define PROGRAM "stoilo-verifier"

/* For whoever has only the program: `strings` shows what it was built for. */
__attribute__((used)) static const char ABOUT[] =
    "stoilo-launcher/1 " HELD_PLATFORM " " HELD_VERSION " " HELD_SERIAL " " HELD_ARCHIVE_SHA256
    " " HELD_ARCHIVE_SIZE_TEXT " " HELD_TREE_SHA256 "\n";

/* Descriptors 0, 1 and 2 are open afterwards, so that no file of ours becomes one of them. */
static void keep_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            FAIL(OURS, "STO-F059", "/dev/null cannot be opened (", errno_name(),
                 "); closed streams are replaced by it; run this where it exists");
    if (close_range(STDERR_FILENO + 1, ~0U, 0) != 0)
        FAIL(OURS, "STO-F059", "inherited descriptors cannot be closed (", errno_name(),
             "); the kernel or a filter around this process lacks close_range; use Linux 5.13 or "
             "newer");
}

static void reset_signals(void)
{
    sigset_t none;
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    for (int number = 1; number <= SIGRTMAX; number++)
        (void)sigaction(number, &usual, NULL); /* SIGKILL and SIGSTOP are as they are */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void reset_process(void)
{
    const struct rlimit no_core = {0, 0};
    if (getuid() != geteuid() || getgid() != getegid())
        FAIL(OURS, "STO-F059",
             "this program was started with somebody else's rights; it is not made for setuid or "
             "setgid; remove them from the file");
    keep_streams();
    reset_signals();
    (void)umask(077);
    if (setrlimit(RLIMIT_CORE, &no_core) != 0)
        FAIL(OURS, "STO-F059", "core files cannot be switched off (", errno_name(),
             "); they would hold a task's data; lift the restriction around this process");
}

/* `--launcher=PATH`: the verifier's self-check reads the file. */
static char *own_path(void)
{
    static const char option[] = "--launcher=";
    static char text[sizeof option + PATH_MAX];
    memcpy(text, option, sizeof option);
    ssize_t length = readlink("/proc/self/exe", text + sizeof option - 1, PATH_MAX);
    if (length <= 0 || length == PATH_MAX)
        FAIL(OURS, "STO-F059", "this program cannot find itself (", errno_name(),
             "); /proc must be mounted; mount it");
    return text;
}

static bool is_allowed(const char *word)
{
    return strcmp(word, "--explain") == 0 || strcmp(word, "--self-check") == 0 ||
           strcmp(word, "--version") == 0;
}

_Noreturn static void run(const char *directory, int count, char **words)
{
    enum { MOST = 8 }; /* program, launcher, allowed words, end */
    static char program[PATH_MAX], home[5 + PATH_MAX] = "HOME=";
    static char path[] = "PATH=/usr/bin:/bin", language[] = "LANG=C.UTF-8", zone[] = "TZ=UTC";
    static char *argv[MOST], *envp[5] = {path, language, zone};
    const char *volunteer = own_home();
    int given = 2;

    strcpy(program, directory);
    join(program, PROGRAM);
    argv[0] = program;
    argv[1] = own_path();
    for (int i = 1; i < count && given < MOST - 1; i++)
        if (is_allowed(words[i]))
            argv[given++] = words[i];
    if (volunteer != NULL)
        envp[3] = strcat(home, volunteer);
    execve(program, argv, envp);
    FAIL(OURS, "STO-F059", "the verifier ", program, " does not start (", errno_name(),
         "); its file system may forbid programs (noexec), or memory is short; mount it without "
         "noexec, or move BOINC's data directory");
}

int main(int count, char **words)
{
    static const struct held held = {
        .platform = HELD_PLATFORM,
        .archive = HELD_ARCHIVE_SHA256,
        .archive_size = HELD_ARCHIVE_SIZE,
        .tree = HELD_TREE_SHA256,
    };
    static struct place place;
    reset_process();
    place_open(&place);
    tree_prepare(&place, ARCHIVE, &held);
    join(place.path, held.tree);
    run(place.path, count, words);
}
