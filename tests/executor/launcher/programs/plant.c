/* A library that says that it was loaded: a file is made when it is. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void mark(void)
{
    int fd = open(MARKER, O_WRONLY | O_CREAT, 0644);
    if (fd >= 0)
        close(fd);
}
