"""The processes that one has started, and what they have; read from ``/proc``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["alive", "descendants"]


def _stat(pid: int | str) -> tuple[int, str, str] | None:
    """Return parent, start time and state of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), fields[19], fields[0]


def descendants(top: int) -> dict[int, str]:
    """Return the processes below `top`: pid → start time, which tells it from another."""
    stats = {
        int(path.name): stat
        for path in Path("/proc").glob("[0-9]*")
        if (stat := _stat(path.name)) is not None
    }
    below = {top}
    while more := {p for p, (up, _, _) in stats.items() if up in below} - below:
        below |= more
    return {pid: stats[pid][1] for pid in below - {top} if pid in stats}


def alive(family: Mapping[int, str]) -> list[int]:
    """Return which of these processes still run."""
    now = ((pid, _stat(pid), at) for pid, at in family.items())
    return [
        pid
        for pid, stat, at in now
        if stat is not None and stat[1] == at and stat[2] not in "ZX"
    ]
