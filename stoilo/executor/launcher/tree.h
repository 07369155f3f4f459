/* An unpacked verifier on the disk. Ends the program on any fault. */
#ifndef TREE_H
#define TREE_H

#include "unpack.h"

/* Unpacks the archive `name`, unless it was already, and compares every file of the tree with
 * its manifest, whether it was unpacked just now or long ago. */
void tree_prepare(const struct place *place, const char *name, const struct held *held);

#endif
