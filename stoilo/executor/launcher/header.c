#include <string.h>

#include "header.h"

enum { BLOCK = BLOCK_BYTES, NAME = 100, PREFIX = 155 };

static void put_octal(unsigned char *field, size_t digits, uint64_t value)
{
    for (size_t i = digits; i > 0; i--, value >>= 3)
        field[i - 1] = (unsigned char)('0' + (value & 7));
}

/* Puts `path` into the fields name and prefix; a long one is cut at the first slash after
 * which the rest fits. */
static bool put_path(unsigned char *block, const char *path)
{
    size_t length = strlen(path), cut = 0;
    if (length > NAME) {
        while (cut < length && (path[cut] != '/' || length - cut - 1 > NAME))
            cut++;
        if (cut == length || cut > PREFIX)
            return false;
        memcpy(block + 345, path, cut++);
    }
    memcpy(block, path + cut, length - cut);
    return true;
}

bool archive_header(const char *path, uint64_t size, bool executable, unsigned char *block)
{
    unsigned sum = 0;
    memset(block, 0, BLOCK);
    if (!put_path(block, path))
        return false;
    put_octal(block + 100, 7, executable ? 0755 : 0644);
    put_octal(block + 108, 7, 0); /* uid */
    put_octal(block + 116, 7, 0); /* gid */
    put_octal(block + 124, 11, size);
    put_octal(block + 136, 11, 315532800); /* 1980-01-01 */
    memset(block + 148, ' ', 8);
    put_octal(block + 329, 7, 0); /* devices */
    put_octal(block + 337, 7, 0);
    block[156] = '0'; /* a regular file */
    memcpy(block + 257, "ustar\0" "00", 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += block[i];
    put_octal(block + 148, 6, sum);
    block[154] = '\0';
    return true;
}
