"""What a project offers its mirrors, what a mirror holds, what it should fetch. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "INDEX",
    "LISTED_MOST",
    "LISTING_BYTES",
    "Listed",
    "Plan",
    "parse_index",
    "parse_listing",
    "plan",
    "render_index",
    "render_listing",
]

INDEX: Final = "index.txt"
"""File in which a mirror says what it holds, a digest a line."""

LISTED_MOST: Final = 50_000
LISTING_BYTES: Final = 8 * 1024 * 1024
_LINE: Final = re.compile(r"([0-9a-f]{64}) ([0-9]{1,15})")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file: its SHA-256 and its size, bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a mirror has to do.

    Attributes:
        evict: digests that the project does not list any more, or that have no room.
        fetch: files that are missing, in order.
        left_out: files for which there is no room.
    """

    evict: tuple[str, ...]
    fetch: tuple[Listed, ...]
    left_out: tuple[Listed, ...]


def render_listing(files: Iterable[Listed]) -> bytes:
    """Return the project's list: digest and size a line, most wanted first."""
    return "".join(f"{one.digest} {one.size}\n" for one in files).encode()


def parse_listing(data: bytes) -> tuple[Listed, ...]:
    """Return a project's (untrusted) list; raises ``STO-B054``."""
    matches = [_LINE.fullmatch(line) for line in _lines(data)]
    if None in matches or len(matches) > LISTED_MOST:
        raise TrustError("STO-B054", "the project's list of files cannot be read")
    found = (Listed(match[1], int(match[2])) for match in matches if match)
    return tuple({one.digest: one for one in found}.values())


def render_index(digests: Iterable[str]) -> bytes:
    """Return a mirror's index."""
    return "".join(f"{digest}\n" for digest in sorted(digests)).encode()


def parse_index(data: bytes) -> frozenset[str]:
    """Return the digests of a mirror's (untrusted) index; raises ``STO-B053``."""
    lines = _lines(data)
    if not all(_DIGEST.fullmatch(line) for line in lines) or len(lines) > LISTED_MOST:
        raise TrustError("STO-B053", "the mirror's index cannot be read")
    return frozenset(lines)


def _lines(data: bytes) -> list[str]:
    """Return the lines of a text; what is not ASCII is one that nothing matches."""
    if len(data) > LISTING_BYTES:
        return ["too long"]
    return data.decode("ascii", "replace").splitlines()


def plan(listed: Iterable[Listed], held: Mapping[str, int], most_bytes: int) -> Plan:
    """Return what to delete and fetch so that at most `most_bytes` are held.

    The project's order decides what is left out when not everything has room.
    """
    wanted: dict[str, Listed] = {}
    left_out = []
    room = most_bytes
    for one in listed:
        if one.size <= room:
            wanted[one.digest] = one
            room -= one.size
        else:
            left_out.append(one)
    return Plan(
        evict=tuple(sorted(held.keys() - wanted.keys())),
        fetch=tuple(one for one in wanted.values() if one.digest not in held),
        left_out=tuple(left_out),
    )
