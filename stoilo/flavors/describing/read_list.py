"""Lists of library functions that somebody has read, each with the reason why it may stay.

A paragraph is a reason and the functions it holds for, each with what was found in it and a
digest of its text. What is new, or changed in a new version of the library, comes last,
under `UNREAD`: read it, then close it, withhold it, or give it a reason. A line that ends
in ``.*`` covers all of an internal module; the library's version is pinned by its lock.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from stoilo.core.errors import UsageError
from stoilo.flavors.describing.source_scan import Finding

UNREAD = "UNREAD"
_WIDTH = 94


def parse_read_list(text: str) -> dict[Finding, str]:
    """Return the findings of a list with their reasons; raises ``STO-U004``."""
    found = {}
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip().split("\n")
        reason = " ".join(line[2:] for line in lines if line.startswith("# "))
        for line in lines:
            if line and not line.startswith("#"):
                found[_parse_line(line)] = reason
    return found


def _parse_line(line: str) -> Finding:
    name, *rest = line.split(" | ")
    if not rest and name.endswith(".*"):
        return Finding(name, (), "")
    if len(rest) != len(("patterns", "digest")):
        raise UsageError("STO-U004", f"a read list has the line {line[:80]!r}")
    return Finding(name, tuple(rest[0].split(", ")), rest[1])


def render_read_list(found: Mapping[Finding, str]) -> str:
    """Return the list, with what is unread at the end."""
    reasons = sorted(set(found.values()), key=lambda reason: (reason == UNREAD, reason))
    paragraphs = []
    for reason in reasons:
        head = textwrap.wrap(
            reason, _WIDTH, initial_indent="# ", subsequent_indent="# "
        )
        items = (item for item in sorted(found) if found[item] == reason)
        paragraphs.append("\n".join([*head, *map(_render_line, items)]))
    return "\n\n".join(paragraphs) + "\n"


def _render_line(item: Finding) -> str:
    parts = (item.name, ", ".join(item.patterns), item.digest)
    return " | ".join(part for part in parts if part or item.patterns)


def find_unread(
    found: Iterable[Finding], reasons: Mapping[Finding, str]
) -> list[Finding]:
    """Return those of `found` that no line with a reason covers."""
    read = {item for item, reason in reasons.items() if reason not in {"", UNREAD}}
    whole = tuple(item.name[:-1] for item in read if not item.patterns)
    return [one for one in found if one not in read and not one.name.startswith(whole)]


def renew(found: Iterable[Finding], reasons: Mapping[Finding, str]) -> str:
    """Return the list with what is unread put in and what went left out."""
    kept = dict(reasons)
    items = list(found)
    names = {item.name for item in items}
    unread = find_unread(items, kept)
    stay = {
        item: reason
        for item, reason in kept.items()
        if not item.patterns or (item.name in names and reason != UNREAD)
    }
    return render_read_list(stay | dict.fromkeys(unread, UNREAD))
