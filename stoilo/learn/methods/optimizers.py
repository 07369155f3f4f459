"""Optimisers on named arrays: plain, momentum, Adam(W), Adagrad; nothing but numpy.

A name that has no gradient keeps its value and its state, as in torch. Rules and defaults
are torch's, so that a step here equals a step there (tests compare the two).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from stoilo.learn.core.orders import State
from stoilo.learn.core.states import join, pick, read_float
from stoilo.learn.core.tensors import Array, Tensors


class Optimizer(Protocol):
    """Whoever turns parameters and a gradient into the next parameters.

    Attributes:
        rate: the learning rate of the next step; a schedule sets it.
    """

    rate: float

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step; the arguments stay as they are."""

    def save(self) -> State:
        """Return all that later steps depend on."""

    def load(self, state: State) -> None:
        """Go on from a saved state."""


class Sgd:
    """``u ← m·u + g + d·w``, ``w ← w - η·u`` (with Nesterov's ``g + m·u`` if asked for).

    The rate stands outside of the buffer, so that a change of it needs no correction.
    """

    def __init__(
        self,
        rate: float,
        *,
        momentum: float = 0.0,
        decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.rate = rate
        self.momentum = momentum
        self.decay = decay
        self.nesterov = nesterov
        self._speed: dict[str, Array] = {}

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step."""
        return {
            name: self._move(name, array, gradient[name]) if name in gradient else array
            for name, array in parameters.items()
        }

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        if self.decay:
            slope = slope + self.decay * array
        if self.momentum:
            before = self._speed.get(name)
            speed = slope if before is None else self.momentum * before + slope
            self._speed[name] = speed
            slope = slope + self.momentum * speed if self.nesterov else speed
        return cast_like(array - self.rate * slope, array)

    def save(self) -> State:
        """Return rate and momentum buffers."""
        return State(join(speed=self._speed), {"rate": self.rate})

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        self._speed = pick(state.tensors, "speed")
        self.rate = read_float(state.plain, "rate")


class Momentum:
    """The other form of momentum: ``v ← m·v + η·g``, ``w ← w - v``.

    The rate is folded into the buffer, so each change of it needs the *momentum
    correction*, `v` times new rate by old; without it the next steps are wrong by that factor.
    """

    def __init__(
        self, rate: float, *, momentum: float = 0.9, corrected: bool = True
    ) -> None:
        self.rate = rate
        self.momentum = momentum
        self.corrected = corrected
        self._used = rate
        self._speed: dict[str, Array] = {}

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step, the buffer corrected for the rate."""
        # The buffer holds the old rate: without this the next steps are off by it.
        factor = self.rate / self._used if self.corrected and self._used else 1.0
        self._used = self.rate
        after: dict[str, Array] = {}
        for name, array in parameters.items():
            after[name] = array
            if name in gradient:
                fresh = self.rate * gradient[name]
                if name in self._speed:
                    fresh = self.momentum * factor * self._speed[name] + fresh
                self._speed[name] = fresh
                after[name] = cast_like(array - fresh, array)
        return after

    def save(self) -> State:
        """Return rates and momentum buffers."""
        plain = {"rate": self.rate, "used": self._used}
        return State(join(speed=self._speed), plain)

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        self._speed = pick(state.tensors, "speed")
        self.rate = read_float(state.plain, "rate")
        self._used = read_float(state.plain, "used")


class Adam:
    """Adam (Kingma, Ba 2015); with `decoupled`, decay acts on the parameter: AdamW."""

    def __init__(
        self,
        rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
        decoupled: bool = False,
    ) -> None:
        self.rate = rate
        self.betas = betas
        self.epsilon = epsilon
        self.decay = decay
        self.decoupled = decoupled
        self._steps: dict[str, int] = {}
        self._first: dict[str, Array] = {}
        self._second: dict[str, Array] = {}

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step."""
        return {
            name: self._move(name, array, gradient[name]) if name in gradient else array
            for name, array in parameters.items()
        }

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        start: Array = array
        if self.decay and self.decoupled:
            start = (1.0 - self.rate * self.decay) * array
        elif self.decay:
            slope = slope + self.decay * array
        slow, slower = self.betas
        steps = self._steps[name] = self._steps.get(name, 0) + 1
        first = blend(self._first.get(name), slope, slow)
        second = blend(self._second.get(name), slope * slope, slower)
        self._first[name], self._second[name] = first, second
        width = np.sqrt(second / (1.0 - slower**steps)) + self.epsilon
        move = self.rate / (1.0 - slow**steps) * first / width
        return cast_like(start - move, array)

    def save(self) -> State:
        """Return both moments, and how many steps each name has made."""
        steps = {name: np.asarray(count) for name, count in self._steps.items()}
        tensors = join(first=self._first, second=self._second, steps=steps)
        return State(tensors, {"rate": self.rate})

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        self._first = pick(state.tensors, "first")
        self._second = pick(state.tensors, "second")
        steps = pick(state.tensors, "steps")
        self._steps = {name: int(count) for name, count in steps.items()}
        self.rate = read_float(state.plain, "rate")


class Adagrad:
    """``G ← G + g²``, then ``w ← w - η·g/(√G + ε)``: per coordinate, G kept here only.

    The square is added before the root is taken (DistBelief's appendix counts it in).
    """

    def __init__(self, rate: float = 0.05, *, epsilon: float = 1e-10) -> None:
        self.rate = rate
        self.epsilon = epsilon
        self._squares: dict[str, Array] = {}

    @property
    def squares(self) -> Mapping[str, Array]:
        """Sum of the squares of all gradients so far, by name."""
        return self._squares

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step."""
        after = dict(parameters)
        for name, slope in gradient.items():
            before = self._squares.get(name)
            # Before the root, as DistBelief's appendix counts it.
            square = slope * slope if before is None else before + slope * slope
            self._squares[name] = square
            move = self.rate * slope / (np.sqrt(square) + self.epsilon)
            after[name] = cast_like(parameters[name] - move, parameters[name])
        return after

    def save(self) -> State:
        """Return the rate and the sums of squares."""
        return State(join(squares=self._squares), {"rate": self.rate})

    def load(self, state: State) -> None:
        """Go on from a saved state."""
        self._squares = pick(state.tensors, "squares")
        self.rate = read_float(state.plain, "rate")


def blend(before: Array | None, fresh: Array, kept: float) -> Array:
    """Return ``kept * before + (1 - kept) * fresh``; nothing before counts as zeros."""
    part: Array = (1.0 - kept) * fresh
    return part if before is None else kept * before + part


def cast_like(array: Array, like: Array) -> Array:
    """Return `array` in the type of `like`."""
    return np.asarray(array, dtype=like.dtype)
