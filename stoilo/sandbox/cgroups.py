"""Which bounds the control groups around this process set; reported, never relied on.

stoilo makes no group of its own: that needs a delegated subtree, which an ordinary user's
session rarely has. Where a service manager or container runtime bounds memory or processes,
every run is inside these bounds too. Source: the kernel's admin-guide/cgroup-v2.
"""

from __future__ import annotations

import os

__all__ = ["LAYERS", "find_bounds"]

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
