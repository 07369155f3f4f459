"""Foreign text on a terminal: what a task or volunteer wrote must not command it."""

from __future__ import annotations

from datetime import UTC, datetime

_KEPT = frozenset("\n\t")


def show_plainly(text: str) -> str:
    """Return untrusted `text` with control and invisible characters spelled out."""
    if text.isprintable():
        return text
    return "".join(
        char if char in _KEPT or char.isprintable() else ascii(char)[1:-1]
        for char in text
    )


def show_time(seconds: int) -> str:
    """Return POSIX seconds as ``2026-11-20 14:31:47 UTC``; past any calendar, a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s since 1970"
