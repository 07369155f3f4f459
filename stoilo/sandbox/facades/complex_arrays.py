"""`numpy.emath`: functions whose results leave the real line; no module of that name."""

from __future__ import annotations

import numpy as np

from stoilo.core.levels import Level

__all__ = ["build"]


def build(level: Level) -> dict[str, object]:
    """Return what the level lists of ``numpy.emath``."""
    names = level.modules["numpy.emath"].names
    return {name: getattr(np.emath, name) for name in names}
