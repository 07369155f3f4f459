"""Programs over described libraries in the full jail, against plain CPython with them.

A library that is not described yet, or not installed, has no rows.
"""

from __future__ import annotations

import importlib.util

from bench.corpus import LIBRARIES, Program
from bench.rows import Row
from bench.whole import Jailed, Plain, measure_programs, settled
from stoilo.core.libraries import add_libraries, load_libraries
from stoilo.policies.levels import load_level

TARGET = 1.05


def measure(
    rounds: int = 5, programs: dict[str, tuple[Program, ...]] = LIBRARIES
) -> list[Row]:
    """Return for each library a row for each program and one for the geometric mean."""
    return [
        row
        for name, own in programs.items()
        if load_libraries([name]) and importlib.util.find_spec(name)
        for row in _measure_one(name, own, rounds)
    ]


def _measure_one(name: str, programs: tuple[Program, ...], rounds: int) -> list[Row]:
    (library,) = load_libraries([name])
    level = add_libraries(load_level(library.level), [library])
    with Jailed(level) as ours, Plain(level.preload, settled()) as plain:
        sides = {"ours": ours.run, "plain": plain.run}
        return measure_programs(name, programs, sides, TARGET, rounds)
