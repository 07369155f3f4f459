"""`numpy.typing`: its aliases, without the documentation that it builds at import.

The alias of arrays is our own, so that it is no way around their constructor.
"""

from __future__ import annotations

from numpy._typing import ArrayLike, DTypeLike

from stoilo.core.levels import Level
from stoilo.sandbox.facades.arrays import ARRAY_ALIAS

__all__ = ["build"]


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"ArrayLike": ArrayLike, "DTypeLike": DTypeLike, "NDArray": ARRAY_ALIAS}
