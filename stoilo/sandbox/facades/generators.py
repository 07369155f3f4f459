"""`random`: seeded by the admission wherever CPython would ask the system for entropy."""

from __future__ import annotations

import random
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.determinism import RUN

__all__ = ["build"]


class Random(random.Random):
    """``random.Random`` whose missing seed comes from the admission."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Seed; None means the next seed of this run."""
        super().seed(RUN.next_seed() if a is None else a, version)


Random.__module__ = "random"


def seed(a: Any = None, version: int = 2) -> None:
    """Seed the module's generator; None means the next seed of this run."""
    random.seed(RUN.next_seed() if a is None else a, version)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"Random": Random, "seed": seed}
