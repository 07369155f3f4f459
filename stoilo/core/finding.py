"""One thing that the gate or the language layer says about a place in a source."""

from __future__ import annotations

from enum import StrEnum

import msgspec


TEXT_CHARS, TEXT_BYTES = 400, 1000
"""Most characters of a finding's text, and most bytes of it in JSON."""
_CODE_CHARS = 16


def bound_text(text: str) -> str:
    """Return `text` (it may quote hostile source) within both bounds, as valid Unicode."""
    if text.isascii() and len(text) <= TEXT_CHARS // 2:  # nothing takes six bytes here
        return text
    sound = text[: TEXT_CHARS + 1].encode("utf-8", "backslashreplace").decode()
    short = sound if len(sound) <= TEXT_CHARS else sound[: TEXT_CHARS - 1] + "…"
    while len(msgspec.json.encode(short)) > TEXT_BYTES:
        short = short[: len(short) * 3 // 4] + "…"
    return short


class Severity(StrEnum):
    """How bad a finding is; any error refuses."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True):
    """One thing the gate has to say about a place in the source.

    Lines and columns count from 1; the end is exclusive in columns. Texts are bounded here,
    whoever makes one, also where it is read from a process that saw hostile source.
    """

    code: str
    severity: Severity
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    hint: str

    def __post_init__(self) -> None:
        """Cut the texts to their bounds."""
        msgspec.structs.force_setattr(self, "code", self.code[:_CODE_CHARS])
        for name in ("message", "hint"):
            text = bound_text(getattr(self, name))
            msgspec.structs.force_setattr(self, name, text)
