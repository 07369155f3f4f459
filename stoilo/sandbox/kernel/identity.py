"""Who the jailed child is: an unprivileged uid of its own, without capabilities.

As root every child gets a uid from the range that systemd reserves for transient users
(61184 to 65519: it owns no file), another one for each concurrent child; as an ordinary
user the uid stays, and what separates children is the rest of the jail.
"""

from __future__ import annotations

import os

from stoilo.sandbox.kernel.libc import prctl, set_capabilities

FIRST_UID, UIDS, NOBODY = 61184, 4335, 65534
ZYGOTE_UID = FIRST_UID + UIDS
"""The last of the transient users' range: no child gets it, and it owns no file."""
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
_PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 4, 23, 24
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITIES = 64  # an upper bound; the kernel says EINVAL past its last


def _read_map(name: str) -> tuple[tuple[int, int, int], ...]:
    """Return this user namespace's ranges: first id inside, outside, count.

    The file holds at most 340 lines of three numbers; nothing where there is no /proc.
    Source: user_namespaces(7).
    """
    try:
        with open(f"/proc/self/{name}", encoding="ascii") as lines:  # noqa: PTH123 - pathlib would cost every cold start 3 ms
            words = [line.split() for line in lines]
    except OSError:
        return ()
    return tuple((int(inside), int(out), int(count)) for inside, out, count in words)


def _is_mapped(uid: int, name: str = "uid_map") -> bool:
    return any(first <= uid < first + count for first, _, count in _read_map(name))


def is_lonely_root() -> bool:
    """Whether the caller is root of a user namespace that has no other user to become.

    Rootless containers and ``unshare -r`` map an ordinary user to 0, often it alone.
    """
    return os.geteuid() == 0 and not (_is_mapped(FIRST_UID) or _is_mapped(NOBODY))


def is_root_outside() -> bool:
    """Whether the caller is the machine's root under another name, and must stay it.

    Root may appear as any id of a user namespace; its files then stay its own, and limits
    on processes do not bind it. The kernel makes root the owner of its settings, whatever
    namespace /proc was mounted in, so they show who root is here.
    """
    try:
        root = os.stat("/proc/sys/kernel").st_uid  # noqa: PTH116 - as above
    except OSError:
        return False
    return os.geteuid() == root and (root != 0 or is_lonely_root())


def choose_uid(run: int) -> int | None:
    """Return the uid for a run, None when not root; `run` counts from a random start."""
    return uid_of_run(run) if os.geteuid() == 0 else None


def uid_of_run(run: int) -> int:
    """Return the uid of a run where every run has one of its own."""
    return FIRST_UID + run % UIDS


def can_leave_root() -> bool:
    """Whether the zygote is root and has a user to become; to be asked while /proc is there."""
    maps = ("uid_map", "gid_map")
    return os.geteuid() == 0 and all(_is_mapped(ZYGOTE_UID, name) for name in maps)


def leave_root() -> None:
    """Become the zygotes' own user and keep the capabilities; raises OSError.

    The parent-death signal is cleared by it.
    """
    prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(ZYGOTE_UID, ZYGOTE_UID, ZYGOTE_UID)
    os.setresuid(ZYGOTE_UID, ZYGOTE_UID, ZYGOTE_UID)
    prctl(_PR_SET_KEEPCAPS, 0)


def drop_identity(uid: int | None) -> None:
    """Give up root, groups and every capability, for good.

    Args:
        uid: user and group to become; None keeps the (ordinary) user.

    Raises:
        OSError: the kernel refused, or the process would still be root.
    """
    if uid is not None:
        os.setgroups([])
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:  # a user namespace that maps few ids
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
    set_capabilities(0)
    if 0 in os.getresuid() or 0 in os.getresgid():
        raise PermissionError("the child is still root")


def become_undumpable() -> None:
    """Forbid core dumps, ptrace and /proc/PID access by others of the same user."""
    prctl(_PR_SET_DUMPABLE, 0)


def drop_bounding_set() -> None:
    """Remove every capability from the bounding and ambient sets, if permitted."""
    for capability in range(_CAPABILITIES):
        try:
            if prctl(_PR_CAPBSET_READ, capability):
                prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break
    try:
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError:
        pass  # kernels before 4.3 have no ambient set


def keep_zygote_capabilities(*, own_uids: bool) -> None:
    """Keep only what the zygote needs: to change the child's uid and to kill it."""
    keep = (CAP_KILL, CAP_SETGID, CAP_SETUID) if own_uids else ()
    set_capabilities(sum(1 << capability for capability in keep))
