"""Pure-Python programs in the full jail, every guard on, against plain CPython."""

from __future__ import annotations

from bench.corpus import KERNELS, Program
from bench.rows import Row
from bench.whole import Jailed, Plain, measure_programs, settled
from stoilo.policies.levels import load_level

TARGET = 1.05
MODULES = ("collections", "dataclasses", "heapq", "json", "math", "random", "re")


def measure(rounds: int = 5, programs: tuple[Program, ...] = KERNELS) -> list[Row]:
    """Return a row for each program and one for the geometric mean."""
    with Jailed(load_level("pure")) as ours, Plain(MODULES, settled()) as plain:
        sides = {"ours": ours.run, "plain": plain.run}
        return measure_programs("full jail", programs, sides, TARGET, rounds)
