"""Foreign text on a terminal: what a task or volunteer wrote must not command it."""

from __future__ import annotations

_KEPT = frozenset("\n\t")


def show_plainly(text: str) -> str:
    """Return untrusted `text` with control and invisible characters spelled out."""
    if text.isprintable():
        return text
    return "".join(
        char if char in _KEPT or char.isprintable() else ascii(char)[1:-1]
        for char in text
    )
