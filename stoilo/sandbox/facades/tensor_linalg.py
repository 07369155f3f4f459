"""`torch.linalg`: least squares that do not depend on what free memory holds."""

from __future__ import annotations

from typing import Any

import torch

from stoilo.core.levels import Level

__all__ = ["build"]


def lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> Any:  # noqa: N803 - torch's names
    """``torch.linalg.lstsq`` by singular values where the library would pivot.

    Its default driver, ``gelsy``, reads an array of pivots that nobody has set: two runs
    in one process differ in the last bits.
    """
    chosen = "gelsd" if driver in {None, "gelsy"} else driver
    return torch.linalg.lstsq(A, B, rcond, driver=chosen)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"lstsq": lstsq}
