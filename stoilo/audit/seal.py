"""A last line that tells whether a text file is still what was written. Pure.

The log's own copy of its policy is signed by nobody; a bit that flips in a witness's
address would leave it well-formed. The line is a comment of tlog-policy: readers that do
not know it pass over it. It keeps out damage, not forgers.
"""

from __future__ import annotations

import hashlib

__all__ = ["seal", "unseal"]

_MARK = b"# sha256 "


def seal(text: bytes) -> bytes:
    """Return `text` (whole lines) with its digest in a last line."""
    return text + _line(text)


def unseal(data: bytes) -> bytes | None:
    """Return the text without its last line; None when that line does not fit it.

    What has no such line, as older versions wrote it, comes back as it is.
    """
    text, mark, _ = data.rpartition(_MARK)
    if not mark:
        return data
    return text if data == seal(text) else None


def _line(text: bytes) -> bytes:
    return _MARK + hashlib.sha256(text).hexdigest().encode() + b"\n"
