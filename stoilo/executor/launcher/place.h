/* The volunteer's own directory, outside of what a project fills. */
#ifndef PLACE_H
#define PLACE_H

#include <limits.h>
#include <stdbool.h>

struct place {
    char path[PATH_MAX];
    int fd;
};

/* Opens, and makes if need be, the directory of verifiers: beside BOINC's `slots` when this
 * is a slot, else below HOME. Ends the program unless it is private. */
void place_open(struct place *place);
bool is_private(int fd);                         /* this user's, closed to others */
const char *own_home(void);                      /* HOME, if it is a directory of this user */
void join(char path[PATH_MAX], const char *name); /* appends `/name` */

#endif
