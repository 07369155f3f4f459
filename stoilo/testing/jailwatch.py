"""Jailed processes as the kernel shows them from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from stoilo.testing.boinc import BoincClient

__all__ = ["jailed"]

FILTERED = "2"
"""``Seccomp`` of a process behind a system call filter."""


def jailed(client: BoincClient) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the client's processes behind a system call filter, with their status."""
    for pid in client.family():
        try:
            text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except OSError:  # it has just ended
            continue
        lines = (line.partition(":\t") for line in text.splitlines())
        status = {name: value for name, _, value in lines}
        if status.get("Seccomp") == FILTERED:
            yield pid, status
