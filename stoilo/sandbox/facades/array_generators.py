"""`numpy.random`: a generator made without a seed takes the admission's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import bit_generator

from stoilo.core.levels import Level
from stoilo.sandbox.language.determinism import RUN
from stoilo.sandbox.language.stand_ins import StandIn

__all__ = ["build"]

_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "SeedSequence")


def default_rng(seed: Any = None) -> np.random.Generator:
    """``numpy.random.default_rng``."""
    return np.random.default_rng(RUN.next_seed() if seed is None else seed)


def legacy_words() -> list[int]:
    """Return a seed in the form that the legacy generator takes: 32-bit words."""
    number = RUN.next_seed()
    return [number >> shift & 0xFFFFFFFF for shift in range(0, 256, 32)]


def seed(seed: Any = None) -> None:
    """``numpy.random.seed``."""
    np.random.seed(legacy_words() if seed is None else seed)  # noqa: NPY002 - the façade


class RandomState(metaclass=StandIn):
    """Stands for ``numpy.random.RandomState``."""

    __stoilo_real__ = np.random.RandomState

    def __new__(cls, seed: Any = None) -> Any:
        """Return a real one; its own constructor would ask the system for entropy."""
        if isinstance(seed, np.random.BitGenerator):
            return np.random.RandomState(seed)
        state = np.random.RandomState(np.random.MT19937(0))
        state.seed(legacy_words() if seed is None else seed)
        return state


class Generator(metaclass=StandIn):
    """Stands for ``numpy.random.Generator``.

    The real class hands out its methods unbound, and those take any object for ``self``
    without looking: its memory would be read as pointers to functions.
    """

    __stoilo_real__ = np.random.Generator

    def __new__(cls, bit_generator: Any) -> Any:
        """Return a real one."""
        return np.random.Generator(bit_generator)


def _seed_bits(count: int) -> int:
    """``secrets.randbits``, from the admission's seed."""
    return RUN.next_seed() & (1 << count) - 1


def _seeded(name: str) -> type:
    real = getattr(np.random, name)

    class Seeded(metaclass=StandIn):
        """Stands for a bit generator or seed sequence."""

        __stoilo_real__ = real

        def __new__(cls, seed: Any = None, **options: Any) -> Any:
            """Return a real one, seeded."""
            if seed is None and not {"entropy", "key", "seed"} & set(options):
                seed = RUN.next_seed()
            return real(**options) if seed is None else real(seed, **options)

    Seeded.__name__ = Seeded.__qualname__ = name
    Seeded.__module__ = "numpy.random"
    return Seeded


def build(level: Level) -> dict[str, object]:
    """Return the replacements; what asks for entropy inside the library gets a seed."""
    del level
    # ``jumped()`` and others make a generator without a seed first.
    bit_generator.randbits = _seed_bits  # type: ignore[attr-defined]  # undeclared
    RandomState.__module__ = Generator.__module__ = "numpy.random"
    return {
        **{name: _seeded(name) for name in _BIT_GENERATORS},
        "Generator": Generator,
        "RandomState": RandomState,
        "default_rng": default_rng,
        "seed": seed,
    }
