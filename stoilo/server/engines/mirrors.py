"""Which data servers a host is sent to for a file, and in which order. Pure.

A *mirror* is any web server that holds some of the project's files under their digests.
It is not trusted: a host checks what it gets, as it does with the project's own server,
which always comes last. BOINC's clients take URLs in the order of the reply and go on to
the next after any failure (``client/pers_file_xfer.cpp``), ours do the same.

Among mirrors of one distance the order is weighted rendezvous hashing over the host: it is
the same at every call, a mirror of weight 2 gets twice the hosts of one of weight 1, and
one that comes or goes moves no host but its own. Distance is the difference of time zones,
which is all that a BOINC client says about where it is.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MOST_MIRRORS",
    "Mirror",
    "distance",
    "parse_mirrors",
    "rank",
]

MOST_MIRRORS: Final = 64
MOST_NAMED: Final = 2
"""Mirrors in one reply's list of a file; the project's own server comes after them."""

NEAR_S: Final = 3 * 3600
"""Time zones that differ by no more count as one place, s."""

_DAY_S: Final = 86_400
_LARGEST_WEIGHT: Final = 1000
_MOST_HOURS: Final = 14
_URL: Final = re.compile(
    r"https?://[A-Za-z0-9.\[\]:-]{1,100}/(?:[A-Za-z0-9._~-]{1,80}/)*"
)
_HINT: Final = "like `https://eu.example.org/stoilo/ weight=2 utc=+1, https://…/`"


@dataclass(frozen=True, slots=True)
class Mirror:
    """A data server besides the project's own.

    Attributes:
        url: under which files lie by digest, with final slash.
        weight: its share of the hosts beside the others', at least 1.
        utc_offset_s: time zone where it stands, s east of UTC; None: near to nobody.
    """

    url: str
    weight: int = 1
    utc_offset_s: int | None = None


def parse_mirrors(text: str) -> tuple[Mirror, ...]:
    """Return the mirrors of a setting: ``URL [weight=N] [utc=±H], …``.

    Raises:
        UsageError: ``STO-B050``.
    """
    parts = [part.split() for part in text.split(",") if part.strip()]
    mirrors = tuple(_parse_mirror(*words) for words in parts)
    if len({mirror.url for mirror in mirrors}) < len(mirrors):
        raise UsageError("STO-B050", "a mirror is named twice")
    if len(mirrors) > MOST_MIRRORS:
        raise UsageError("STO-B050", f"at most {MOST_MIRRORS} mirrors can be named")
    return mirrors


def _parse_mirror(url: str, *words: str) -> Mirror:
    """Return one mirror of the setting."""
    if not _URL.fullmatch(url) or not urlsplit(url).hostname:
        raise UsageError("STO-B050", f"{url[:80]!r} is no mirror's URL", hint=_HINT)
    said = dict(word.partition("=")[::2] for word in words)
    weight, zone = said.pop("weight", "1"), said.pop("utc", "")
    usable = re.fullmatch(r"[0-9]{1,4}", weight) and re.fullmatch(
        r"(?:[+-]?[0-9]{1,2}(?:\.[0-9]{1,2})?)?", zone
    )
    if said or len(words) > 2 or not usable:  # noqa: PLR2004 - the two words there are
        raise UsageError("STO-B050", f"mirror {url!r}: unknown words", hint=_HINT)
    offset = None if not zone else round(float(zone) * 3600)
    if not 1 <= int(weight) <= _LARGEST_WEIGHT or abs(offset or 0) > _MOST_HOURS * 3600:
        raise UsageError(
            "STO-B050",
            f"mirror {url!r}: weight 1 to {_LARGEST_WEIGHT}, utc -14 to +14",
            hint=_HINT,
        )
    return Mirror(url, int(weight), offset)


def distance(mirror: Mirror, utc_offset_s: int | None) -> int:
    """Return 0 for a mirror near to a host, 2 for a far one, 1 where nobody knows."""
    if utc_offset_s is None or mirror.utc_offset_s is None:
        return 1
    apart = abs(utc_offset_s - mirror.utc_offset_s) % _DAY_S
    return 0 if min(apart, _DAY_S - apart) <= NEAR_S else 2


def rank(
    mirrors: Iterable[Mirror], host: int | str, utc_offset_s: int | None = None
) -> tuple[Mirror, ...]:
    """Return mirrors in the order in which a host should try them.

    Args:
        mirrors: those in good health.
        host: its row or name: whatever stays the same from call to call.
        utc_offset_s: time zone that it says it is in, s east of UTC.
    """
    return tuple(
        sorted(
            mirrors,
            key=lambda one: (distance(one, utc_offset_s), _draw(one, host), one.url),
        )
    )


def _draw(mirror: Mirror, host: int | str) -> float:
    """Return a host's draw of a mirror; the smallest wins, in proportion to weight."""
    digest = hashlib.sha256(f"{host}\0{mirror.url}".encode()).digest()
    uniform = (int.from_bytes(digest[:7]) + 1) / (2**56 + 1)
    return -math.log(uniform) / mirror.weight
