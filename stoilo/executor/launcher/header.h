/* The header of a member of the archive: POSIX ustar in one form only. Pure. */
#ifndef HEADER_H
#define HEADER_H

#include <stdbool.h>
#include <stdint.h>

/* Writes the one header of a member; false when the path does not fit the format. */
enum { BLOCK_BYTES = 512 };
bool archive_header(const char *path, uint64_t size, bool executable, unsigned char *block);

#endif
