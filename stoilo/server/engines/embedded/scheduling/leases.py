"""How long a host is asked to keep a sticky file. Pure.

A file that a copy brings stays with the host for a while after its last use, because the
next copy often needs it again (a round of training, the next task of a map), and as long
as any workunit of the project names it. It is given back when neither holds, or when the
host's files are more than its cap; never while a copy on the host needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["KEEP_S", "MOST_FILES", "Lease", "cap_bytes", "files_to_delete"]

KEEP_S: Final = 6 * 3600
"""After the copy's last send, s."""

MOST_FILES: Final = 200
"""Kept by one host: each is named in every request of a BOINC client."""

MOST_BYTES: Final = 8 * 1024**3
DISK_SHARE: Final = 4
"""At most that part (1/n) of what is free on the host, with what it keeps already."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One sticky file at one host.

    Attributes:
        digest: the file's name.
        size: bytes.
        lent_at: when it was last named to the host, s.
        needed_until: end of the lease, s.
        wanted: a workunit, the release or the project still names it.
        in_use: a copy on this host needs it.
    """

    digest: str
    size: int
    lent_at: int
    needed_until: int
    wanted: bool
    in_use: bool = False


def cap_bytes(held_bytes: int, disk_free_bytes: float) -> int:
    """Return how much one host is asked to keep, bytes.

    Args:
        held_bytes: what it keeps now.
        disk_free_bytes: what it says is free; 0: it does not say.
    """
    if disk_free_bytes <= 0:
        return MOST_BYTES
    return min(MOST_BYTES, int(held_bytes + min(disk_free_bytes, 1e18)) // DISK_SHARE)


def files_to_delete(leases: Iterable[Lease], cap: int, now: int) -> tuple[str, ...]:
    """Return which files a host need not keep, the longest unused first."""
    by_age = sorted(leases, key=lambda lease: (lease.lent_at, lease.digest))
    bytes_left = sum(lease.size for lease in by_age)
    files_left = len(by_age)
    gone = []
    for lease in by_age:
        over = bytes_left > cap or files_left > MOST_FILES
        ended = not lease.wanted and now >= lease.needed_until
        if not lease.in_use and (ended or over):
            gone.append(lease.digest)
            bytes_left -= lease.size
            files_left -= 1
    return tuple(gone)
