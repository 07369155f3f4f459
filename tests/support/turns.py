"""How long a fuzz target goes on: so many turns in a test, so long by hand."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

__all__ = ["turns_within"]


def turns_within(seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2, … until `seconds` have passed since the first.

    A test takes a `range` instead: the same programs on a slow machine as on a fast one.
    """
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())
