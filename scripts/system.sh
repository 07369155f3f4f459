#!/bin/sh
# Debian packages that the sandbox and its tests use, and those named as PACKAGE:COMMAND,
# PACKAGE:/FILE or PACKAGE:lib:LIBRARY.
# Root: installed. Otherwise: named.
set -eu

PATH="$PATH:/usr/sbin:/sbin" # ldconfig lies there; an ordinary user's PATH often ends before
missing=""
command -v strace >/dev/null 2>&1 || missing="$missing strace"
ldconfig -p 2>/dev/null | grep -q 'libseccomp\.so\.2' || missing="$missing libseccomp2"
for also in "$@"; do
    case "${also#*:}" in
    /*) [ -e "${also#*:}" ] ;;
    lib:*) ldconfig -p 2>/dev/null | grep -qF "${also#*:lib:}" ;;
    *) command -v "${also#*:}" >/dev/null 2>&1 ;;
    esac || missing="$missing ${also%%:*}"
done
[ -z "$missing" ] && exit 0

# Debian's way to say that a package shall start no daemon.
policy="${STOILO_POLICY_RC_D:-/usr/sbin/policy-rc.d}"
keep_daemons_off() {
    [ -e "$policy" ] && return # somebody has said already what may start
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "system: installing$missing" >&2
    apt-get update -qq >/dev/null || true # what is known may be enough
    case "$missing" in *boinc-client*) keep_daemons_off ;; esac
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends $missing >/dev/null && exit 0
    echo "system: apt-get could not install$missing" >&2
fi

case "$missing" in
*libseccomp2*)
    echo "stoilo: libseccomp is missing and could not be installed from here." >&2
    echo "  Install it: sudo apt-get install libseccomp2" >&2
    exit 1 ;;
*) echo "system: not installed, tests or the bench would use it:$missing" >&2 ;;
esac
