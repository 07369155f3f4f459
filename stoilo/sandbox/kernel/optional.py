"""Optional mechanisms, entered and reported, never relied on: namespaces, groups, speculation.

Many hosts forbid unprivileged user namespaces; seccomp, Landlock and rlimits are the
mandatory part. A pid namespace gives one thing more: when the zygote, its init, dies, the
kernel kills every child.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from stoilo.sandbox.kernel import libc
from stoilo.sandbox.kernel.identity import NOBODY, is_lonely_root
from stoilo.sandbox.kernel.libc import mount, unshare

_USER, _PID = 0x10000000, 0x20000000
_OTHERS = {
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "mount": 0x00020000,
    "cgroup": 0x02000000,
}


def _write_own(name: str, text: str) -> None:
    """Write one of this process's files; pathlib would cost a cold start 3 ms."""
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
    """Return a short file's text, empty where there is none."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib would cost every cold start 3 ms
            return file.read(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _find_group(own: str) -> str | None:
    """Return the path of this process in the unified hierarchy, as it sees it."""
    for line in _read(own).splitlines():
        if line.startswith("0::/"):
            return line[len("0::") :]
    return None


def find_bounds(root: str = _ROOT, own: str = _OWN) -> tuple[str, ...]:
    """Return the names of the bounds in force, from this group up to the root.

    Args:
        root: where the unified hierarchy is mounted.
        own: this process's groups; tests pass files of their own for both.
    """
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


def restrict_speculation(prctl: Callable[..., int] = libc.prctl) -> bool:
    """Keep indirect branches of this process and its children from being steered.

    Args:
        prctl: prctl(2); a test passes a kernel of its own.

    Returns:
        Whether that is in force; not where the kernel leaves no choice to a process.
    """
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
