"""`torch.random`: the one generator of the run; a fork of it puts its state back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from stoilo.core.levels import Level
from stoilo.sandbox.facades.tensor_bounds import set_rng_state
from stoilo.sandbox.facades.tensors import manual_seed, seed

__all__ = ["build"]


@contextlib.contextmanager
def fork_rng(devices: object = None, *, enabled: bool = True) -> Iterator[None]:
    """``torch.random.fork_rng`` for the one device that there is."""
    del devices
    state = torch.get_rng_state()
    try:
        yield
    finally:
        if enabled:
            torch.set_rng_state(state)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    functions = (fork_rng, manual_seed, seed, set_rng_state)
    return {function.__name__: function for function in functions}
