"""Array programs in the full jail against plain numpy at the same settings.

The further column is plain numpy without our settings: one thread still, but every vector
instruction that the processor has. We keep to AVX2, so that honest copies agree
(docs/adr/0010); its distance from 1 is what that costs.
"""

from __future__ import annotations

from bench.corpus import NUMPY, Program
from bench.rows import Row
from bench.whole import Jailed, Plain, measure_programs, one_thread, settled
from stoilo.policies.levels import load_level

TARGET = 1.03
MODULES = ("numpy", "numpy.random", "numpy.fft")


def measure(rounds: int = 5, programs: tuple[Program, ...] = NUMPY) -> list[Row]:
    """Return a row for each program and one for the geometric mean."""
    with (
        Jailed(load_level("numeric")) as ours,
        Plain(MODULES, settled()) as plain,
        Plain(MODULES, one_thread()) as free,
    ):
        sides = {"ours": ours.run, "plain": plain.run, "unpinned": free.run}
        return measure_programs("numpy", programs, sides, TARGET, rounds)
