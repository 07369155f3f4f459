"""`numpy.typing`: its aliases, without the documentation that it builds at import."""

from __future__ import annotations

from numpy._typing import ArrayLike, DTypeLike, NDArray

from stoilo.core.levels import Level

__all__ = ["build"]


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"ArrayLike": ArrayLike, "DTypeLike": DTypeLike, "NDArray": NDArray}
