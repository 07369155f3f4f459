"""Training in the full jail against plain torch at the same settings; and the settings.

Plain torch gets our thread, vector instructions and oneDNN setting, and must give the very
same answer. Then one setting at a time is taken back from plain torch: the further columns
are plain's time without it, so below 1 it costs. Threads have a suite of their own.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.corpus import TORCH, Program
from bench.rows import Row
from bench.whole import Jailed, Plain, measure_programs, one_thread, settled
from stoilo.policies.levels import load_level

TARGET = 1.03
MODULES = ("torch", "torch.optim", "torch.nn", "torch.fft")
SETTINGS = {
    "plain": (("onednn=0", "threads=1"), settled),
    "with oneDNN": (("onednn=1", "threads=1"), settled),
    "every instruction": (("onednn=0", "threads=1"), one_thread),
}


def measure(rounds: int = 4, programs: tuple[Program, ...] = TORCH) -> list[Row]:
    """Return a row for each program and one for the geometric mean."""
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(Jailed(load_level("tensor"))).run}
        for name, (words, environment) in SETTINGS.items():
            plain = Plain((*MODULES, *words), environment())
            sides[name] = stack.enter_context(plain).run
        return measure_programs("torch", programs, sides, TARGET, rounds)
