"""What makes honest copies agree (I7): seeded generators and a clock that stands still.

One `RunState` a process: a jailed child runs one task. Everything random derives from the
admission's seed and the item's index; time is the admission's time, in UTC. Façades draw
from here, and nothing that they hand out asks the operating system.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import sys
from typing import Any

import msgspec

from stoilo.core.digests import Domain, domain_digest

_TICK_S = 1e-6
_STEP_TICKS = 1 << 32
"""What a step adds to the stopwatch: more than it can be read within one step."""


class RunState(msgspec.Struct):
    """Seed and clock of the run in this process.

    Attributes:
        seed: from the admission.
        index: the item's index.
        step: how many states the item has yielded.
        now: admitted_at, s since 1970-01-01 UTC.
        drawn: how many derived seeds were handed out in this step of the item.
        ticks: how often a stopwatch was read; each reading is 1 µs later.
    """

    seed: bytes = bytes(32)
    index: int = 0
    step: int = 0
    now: int = 0
    drawn: int = 0
    ticks: int = 0

    def next_seed(self) -> int:
        """Return the next 256-bit seed of this step, for a generator made without one."""
        self.drawn += 1
        numbers = (self.index, self.drawn, *((self.step,) if self.step else ()))
        parts = (number.to_bytes(8, "big") for number in numbers)
        return int(domain_digest(Domain.SEED, self.seed, *parts), 16)

    def elapsed_s(self) -> float:
        """Return a stopwatch reading: monotonic, equal on every copy."""
        self.ticks += 1
        return self.ticks * _TICK_S


RUN = RunState()


def start_item(seed: bytes, index: int, now: int) -> None:
    """Seed every generator for item `index`, each if its library is loaded."""
    RUN.seed, RUN.index, RUN.now = seed, index, now
    start_step(0)


def start_step(step: int) -> None:
    """Seed every generator for what follows the `step`-th state that the item yielded.

    The streams depend on seed, item and step alone: a run that goes on from a state draws
    what the uninterrupted one draws after the same state.
    """
    RUN.step, RUN.drawn, RUN.ticks = step, 0, step * _STEP_TICKS
    first, number = RUN.next_seed(), RUN.next_seed()
    if (random := sys.modules.get("random")) is not None:
        random.seed(first)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        words = [number >> shift & 0xFFFFFFFF for shift in range(0, 256, 32)]
        numpy_random.seed(words)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(number & 0x7FFFFFFFFFFFFFFF)


# The clock of `datetime` stands still, for library code and for every instance too
#
# A façade's ``datetime.now`` is not the only way to ask: an argument or a sum is a real
# ``datetime``, and its class method ``now`` reads the host's clock. That clock cannot be taken
# away by a filter (vDSO), so the methods are replaced in the process that runs tasks.


def _now(cls: Any, tz: dt.tzinfo | None = None) -> Any:
    """Return admitted_at in `tz`, naive UTC without one (the zone of the jail)."""
    return cls.fromtimestamp(RUN.now, tz)


def _today(cls: Any) -> Any:
    """Return admitted_at, or its day, in UTC."""
    return cls.fromtimestamp(RUN.now)


def _replace(kind: type, **methods: Any) -> None:
    """Replace class methods of a type that takes no assignment."""
    (names,) = gc.get_referents(kind.__dict__)
    for name, method in methods.items():
        method.__name__ = name
        names[name] = classmethod(method)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def stop_clock() -> None:
    """Let ``now``, ``utcnow`` and ``today`` be the admission's time; in a zygote only."""
    _replace(dt.date, today=_today)
    _replace(dt.datetime, now=_now, utcnow=_today)
