/* Stands in for the verifier: says in what state the launcher has started it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void say_signals(void)
{
    sigset_t blocked;
    struct sigaction action;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (sigismember(&blocked, number) == 1)
            printf("blocked %d\n", number);
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            printf("ignored %d\n", number);
    }
}

int main(int count, char **words)
{
    char cwd[4096];
    struct rlimit core;
    int end = 0;
    for (int i = 0; i < count; i++) {
        printf("argv %s\n", words[i]);
        if (strcmp(words[i], "--version") == 0)
            end = 5;
    }
    for (char **one = environ; *one != NULL; one++)
        printf("env %s\n", *one);
    printf("cwd %s\n", getcwd(cwd, sizeof cwd));
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf("fd %d\n", fd);
    mode_t mask = umask(0);
    getrlimit(RLIMIT_CORE, &core);
    printf("umask %03o\ncore %llu\n", (unsigned)mask, (unsigned long long)core.rlim_max);
    say_signals();
    return end;
}
