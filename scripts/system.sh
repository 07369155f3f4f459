#!/bin/sh
# Debian packages that the sandbox and its tests use. Root: installed. Otherwise: named.
set -eu

PATH="$PATH:/usr/sbin:/sbin" # ldconfig lies there; an ordinary user's PATH often ends before
missing=""
command -v strace >/dev/null 2>&1 || missing="$missing strace"
ldconfig -p 2>/dev/null | grep -q 'libseccomp\.so\.2' || missing="$missing libseccomp2"
[ -z "$missing" ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "system: installing$missing" >&2
    apt-get update -qq >/dev/null
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    exit 0
fi

case "$missing" in
*libseccomp2*)
    echo "stoilo: libseccomp is missing and this is not root." >&2
    echo "  Install it: sudo apt-get install libseccomp2" >&2
    exit 1 ;;
*) echo "system: not installed, some tests need it:$missing" >&2 ;;
esac
