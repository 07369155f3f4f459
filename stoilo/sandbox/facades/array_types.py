"""`numpy.typing`: an alias of arrays which is no way around their constructor."""

from __future__ import annotations

from stoilo.core.levels import Level
from stoilo.sandbox.facades.arrays import ARRAY_ALIAS

__all__ = ["build"]


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"NDArray": ARRAY_ALIAS}
