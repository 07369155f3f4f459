"""What holds a run besides filter and Landlock: identity, limits; and what hosts may add.

Without any one of `Mechanism` no run takes place. The probe of the host is an argument of
the zygote, so that a test can take one away; nothing on a command line or in the
environment reaches it. Namespaces, bounds of control groups and the word on speculation
are entered and reported, never relied on.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from enum import StrEnum

from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel import calls
from stoilo.sandbox.kernel.calls import (
    mount,
    prctl,
    set_capabilities,
    unshare,
)

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


class Mechanism(StrEnum):
    """What every jailed child has, or no run takes place (design §5)."""

    LINUX = "linux"
    NO_NEW_PRIVS = "no_new_privs"
    SECCOMP = "seccomp"
    LANDLOCK = "landlock"
    RLIMITS = "rlimits"
    DESCRIPTORS = "closed_descriptors"
    IDENTITY = "non_root_uid"
    UNDUMPABLE = "not_dumpable"
    SESSION = "own_session"
    PARENT_DEATH = "parent_death_signal"


class MechanismError(Exception):
    """A mandatory mechanism could not be applied; its name is the only argument."""


class KernelHost:
    """The running kernel, asked without changing anything."""

    def has(self, mechanism: Mechanism) -> bool:
        """Ask the kernel; what cannot be asked is found out when it is applied."""
        if not sys.platform.startswith("linux"):
            return False

        ask: Callable[[], bool] | None = {
            Mechanism.SECCOMP: calls.is_available,
            Mechanism.LANDLOCK: lambda: calls.detect_abi() > 0,
            Mechanism.NO_NEW_PRIVS: lambda: calls.answers_prctl(
                calls.PR_GET_NO_NEW_PRIVS
            ),
            Mechanism.IDENTITY: lambda: not is_root_outside(),
            Mechanism.RLIMITS: lambda: hasattr(resource, "RLIMIT_AS"),
            Mechanism.DESCRIPTORS: lambda: hasattr(os, "pidfd_open"),
        }.get(mechanism)
        return ask is None or ask()


def find_missing(host: KernelHost) -> tuple[Mechanism, ...]:
    """Return the mandatory mechanisms that `host` lacks, in order."""
    return tuple(mechanism for mechanism in Mechanism if not host.has(mechanism))


# Resource limits of the jailed child, from `RunLimits` --------------------------------


PAGE = resource.getpagesize()


def read_address_space(statm: int) -> int:
    """Return the mapped bytes of the process whose ``/proc/…/statm`` is open at `statm`."""
    return int(os.pread(statm, 64, 0).split()[0]) * PAGE


def apply_limits(
    limits: RunLimits, *, base_bytes: int, descriptors: int, processes: int | None
) -> None:
    """Set every limit, hard equal to soft, on the calling process.

    Processor time alone has a second between them: SIGXCPU names the limit, and SIGKILL
    follows for a process that ignores it.

    Args:
        limits: what the run may use; memory counts above `base_bytes`.
        base_bytes: address space that the warm zygote already holds.
        descriptors: one more than the highest descriptor that may exist.
        processes: threads and processes of the uid, None to leave it as it is (only
            where the uid is shared with others; seccomp then bounds alone).
    """
    table = {
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_AS: base_bytes + limits.memory_bytes,
        resource.RLIMIT_NOFILE: descriptors,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 16,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    if processes is not None:
        table[resource.RLIMIT_NPROC] = processes
    for name, value in table.items():
        _, hard = resource.getrlimit(name)
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        roomy = hard == resource.RLIM_INFINITY or hard > lower
        margin = int(name == resource.RLIMIT_CPU and roomy)
        resource.setrlimit(name, (lower, lower + margin))


_USER, _PID = 0x10000000, 0x20000000
_OTHERS = {
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "mount": 0x00020000,
    "cgroup": 0x02000000,
}


def _write_own(name: str, text: str) -> None:
    # Write one of this process's files; pathlib would cost a cold start 3 ms
    descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def enter_user() -> bool:
    """Enter a user namespace that maps the caller's own ids, root's to nobody's."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(_USER)
        _write_own("setgroups", "deny")
        _write_own("uid_map", f"{uid or NOBODY} {uid} 1")
        _write_own("gid_map", f"{gid or NOBODY} {gid} 1")
    except OSError:
        return False
    return True


_COUNTS_SINCE = (5, 14)


def counts_processes() -> bool:
    """Whether this kernel counts a user's processes in each user namespace apart.

    Source: getrlimit(2), RLIMIT_NPROC, and the kernel's ucounts since 5.14.
    """
    words = os.uname().release.split(".")[:2]
    return all(word.isdigit() for word in words) and (
        tuple(map(int, words)) >= _COUNTS_SINCE
    )


_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_SEALED = 0x1 | 0x2 | 0x4 | 0x8  # MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
_MOUNT_POINT = "/tmp"  # noqa: S108 - covered by the mount, in our namespace only


def empty_root() -> bool:
    """Make an empty read-only file system the root of this mount namespace.

    Called by the zygote after everything is imported: even a call that got past seccomp
    and Landlock would find no file there. Returns whether the host allowed it.
    """
    try:
        mount("", "/", "", _PRIVATE, "")
        mount("none", _MOUNT_POINT, "tmpfs", _SEALED, "size=4k,mode=555")
        os.chdir(_MOUNT_POINT)
        os.chroot(".")
    except OSError:
        return False
    return True


def enter_namespaces() -> tuple[str, ...]:
    """Enter what the host allows; returns the names, ``pid`` last.

    After ``pid`` the *next* fork of the caller is the init of the new namespace.
    """
    entered = []
    if (os.geteuid() != 0 or is_lonely_root()) and enter_user():
        entered.append("user")
    for name, flag in (*_OTHERS.items(), ("pid", _PID)):
        try:
            unshare(flag)
        except OSError:
            continue
        entered.append(name)
    return tuple(entered)


# Which bounds the control groups around this process set; reported, never relied on
#
# stoilo makes no group of its own: that needs a delegated subtree, which an ordinary user's
# session rarely has. Where a service manager or container runtime bounds memory or processes,
# every run is inside these bounds too. Source: the kernel's admin-guide/cgroup-v2.


LAYERS = {"memory.max": "cgroup_memory", "pids.max": "cgroup_pids"}
"""Files of a group → what a bound in them is called."""
_ROOT, _OWN = "/sys/fs/cgroup", "/proc/self/cgroup"
_UNLIMITED = "max"
_MOST_LEVELS = 32


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib would cost every cold start 3 ms
            return file.read(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _find_group(own: str) -> str | None:
    for line in _read(own).splitlines():
        if line.startswith("0::/"):
            return line[len("0::") :]
    return None


def find_bounds(root: str = _ROOT, own: str = _OWN) -> tuple[str, ...]:
    """Return the names of the bounds in force, from this group up to the root."""
    group = _find_group(own)
    if group is None or ".." in group.split("/"):
        return ()
    found = set()
    for _ in range(_MOST_LEVELS):
        found |= {
            layer
            for name, layer in LAYERS.items()
            if _read(f"{root}{group}/{name}") not in {"", _UNLIMITED}
        }
        if group in {"", "/"}:
            break
        group = os.path.dirname(group)  # noqa: PTH120 - likewise
    return tuple(layer for layer in LAYERS.values() if layer in found)


# What the zygote asks of the processor: no guessing across processes ------------------
#
# Optional and reported. The kernel's word on speculation counts for this process and what it
# forks; a task has no secret in its own memory, so what matters is what it could learn from
# others: indirect branches. Source: the kernel's userspace-api/spec_ctrl.


LAYER = "speculation_indirect_branch"
_PR_GET_SPECULATION_CTRL, _PR_SET_SPECULATION_CTRL = 52, 53
_INDIRECT_BRANCH = 1
_CONTROLLABLE, _DISABLED, _FORCE_DISABLE = 1, 1 << 2, 1 << 3


def restrict_speculation(prctl: Callable[..., int] = calls.prctl) -> bool:
    """Keep indirect branches of this process and its children from being steered."""
    try:
        state = prctl(_PR_GET_SPECULATION_CTRL, _INDIRECT_BRANCH)
        if state & (_DISABLED | _FORCE_DISABLE):
            return True
        if not state & _CONTROLLABLE:
            return False
        prctl(_PR_SET_SPECULATION_CTRL, _INDIRECT_BRANCH, _FORCE_DISABLE)
    except OSError:
        return False
    return True
