/* A dynamic program, as a server's plants would have it. */
#include <stdio.h>

int main(void)
{
    return puts("dynamic") < 0;
}
