#!/bin/sh
# Builds the launcher: build.sh HELD OUTPUT
#   HELD    directory of held.h, what the launcher is built for (stoilo.flavors.launcher_build writes it)
#   OUTPUT  the program
# The same compiler and C library give the same bytes, wherever this is done and by whomever.
set -eu
held=$(cd "$1" && pwd)
output=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
cd "$(dirname "$0")"

unset CFLAGS CPPFLAGS LDFLAGS CPATH C_INCLUDE_PATH LIBRARY_PATH GCC_EXEC_PREFIX COMPILER_PATH
export LC_ALL=C TZ=UTC

# shellcheck disable=SC2046
gcc -std=c11 -O2 \
    $(cat warnings.txt) \
    -fstack-protector-strong -fstack-clash-protection -D_FORTIFY_SOURCE=2 \
    -fno-ident \
    -static-pie -fPIE -s -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code \
    -Wl,--build-id=none \
    -I "$held" -o "$output" \
    launcher.c place.c tree.c unpack.c archive.c manifest.c header.c sha256.c failure.c
