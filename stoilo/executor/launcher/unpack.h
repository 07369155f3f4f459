/* An unpacked verifier comes to the disk. Ends the program on any fault. */
#ifndef UNPACK_H
#define UNPACK_H

#include <stdint.h>

#include "place.h"

struct held { /* what this launcher was built for */
    const char *platform;
    const char *archive; /* digest */
    uint64_t archive_size;
    const char *tree; /* digest */
};

enum { PROGRAM_MODE = 0700, FILE_MODE = 0600 }; /* nobody else's business */

/* One launcher at a time unpacks in a place: into a directory with a temporary name, flushed,
 * then renamed. Removes what launchers left that were killed. */
void unpack_lock(const struct place *place);
void unpack(const struct place *place, const char *name, const struct held *held);
void unpack_unlock(void);

#endif
