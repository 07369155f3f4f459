"""Optimisers on named arrays: plain, momentum, Adam(W), Adagrad and its kin; nothing but numpy.

A name that has no gradient keeps its value and its state, as in torch. Rules and defaults
are torch's, so that a step here equals a step there (tests compare the two). Trainers use
them, and shards of the parameter store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from stoilo.learn.core.states import Keeper, Stateful
from stoilo.learn.core.tensors import Array, Tensors


class Optimizer(Keeper, Protocol):
    """Whoever turns parameters and a gradient into the next parameters."""

    rate: float  # the learning rate of the next step; a schedule sets it

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step; the arguments stay as they are."""


class _EachAlone(Stateful, ABC):
    """An optimiser that moves each array by its own gradient."""

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step."""
        return {
            name: self._move(name, array, gradient[name]) if name in gradient else array
            for name, array in parameters.items()
        }

    @abstractmethod
    def _move(self, name: str, array: Array, slope: Array) -> Array:
        """Return an array after its step."""


class Sgd(_EachAlone):
    """``u ← m·u + g + d·w``, ``w ← w - η·u`` (with Nesterov's ``g + m·u`` if asked for).

    The rate stands outside of the buffer, so that a change of it needs no correction.
    """

    kept = Stateful.kept | {"rate": float, "_speed": dict[str, Array]}

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

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        if self.decay:
            slope = slope + self.decay * array
        if self.momentum:
            before = self._speed.get(name)
            speed = slope if before is None else self.momentum * before + slope
            self._speed[name] = speed
            slope = slope + self.momentum * speed if self.nesterov else speed
        return cast_like(array - self.rate * slope, array)


class Momentum(_EachAlone):
    """The other form of momentum: ``v ← m·v + η·g``, ``w ← w - v``.

    The rate is folded into the buffer, so each change of it needs the *momentum
    correction*, `v` times new rate by old; without it the next steps are wrong by that factor.
    """

    kept = Stateful.kept | {
        "rate": float,
        "_used": float,
        "_speed": dict[str, Array],
    }

    def __init__(
        self, rate: float, *, momentum: float = 0.9, corrected: bool = True
    ) -> None:
        self.rate = rate
        self.momentum = momentum
        self.corrected = corrected
        self._used, self._factor = rate, 1.0
        self._speed: dict[str, Array] = {}

    def step(self, parameters: Tensors, gradient: Tensors) -> dict[str, Array]:
        """Return the parameters after one step, the buffer corrected for the rate."""
        # The buffer holds the old rate: without this the next steps are off by it.
        self._factor = self.rate / self._used if self.corrected and self._used else 1.0
        self._used = self.rate
        return super().step(parameters, gradient)

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        fresh = self.rate * slope
        if name in self._speed:
            fresh = self.momentum * self._factor * self._speed[name] + fresh
        self._speed[name] = fresh
        return cast_like(array - fresh, array)


class Adam(_EachAlone):
    """Adam (Kingma, Ba 2015); with `decoupled`, decay acts on the parameter: AdamW.

    Without `corrected`, means that begin at zero are taken as they are: the server's step
    of FedAdam (Reddi et al. 2021, algorithm 2), whose τ is `epsilon`.
    """

    kept = Stateful.kept | {
        "rate": float,
        "_steps": dict[str, int],
        "_first": dict[str, Array],
        "_second": dict[str, Array],
    }

    def __init__(
        self,
        rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        decay: float = 0.0,
        decoupled: bool = False,
        corrected: bool = True,
    ) -> None:
        self.rate = rate
        self.betas = betas
        self.epsilon = epsilon
        self.decay = decay
        self.decoupled = decoupled
        self.corrected = corrected
        self._steps: dict[str, int] = {}
        self._first: dict[str, Array] = {}
        self._second: dict[str, Array] = {}

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        start: Array = array
        if self.decay and self.decoupled:
            start = (1.0 - self.rate * self.decay) * array
        elif self.decay:
            slope = slope + self.decay * array
        slow, slower = self.betas
        steps = self._steps[name] = self._steps.get(name, 0) + 1
        first = blend(self._first.get(name), slope, slow)
        second = self._spread(self._second.get(name), slope * slope)
        self._first[name], self._second[name] = first, second
        seen = (
            (1.0 - slow**steps, 1.0 - slower**steps) if self.corrected else (1.0, 1.0)
        )
        width = np.sqrt(second / seen[1]) + self.epsilon
        move = self.rate / seen[0] * first / width
        return cast_like(start - move, array)

    def _spread(self, before: Array | None, square: Array) -> Array:
        """Return the running mean of the squares."""
        return blend(before, square, self.betas[1])


class Yogi(Adam):
    """Adam whose mean of squares moves by a step of the square's size, not by its distance.

    ``v ← v - (1-β)·g²·sign(v - g²)`` (Zaheer et al. 2018): it forgets a large gradient more
    slowly. With ``corrected=False`` the server's step of FedYogi.
    """

    def _spread(self, before: Array | None, square: Array) -> Array:
        held = np.zeros_like(square) if before is None else before
        fresh: Array = (1.0 - self.betas[1]) * square
        moved: Array = held - fresh * np.sign(held - square)
        return moved


class Adagrad(_EachAlone):
    """``G ← G + g²``, then ``w ← w - η·g/(√G + ε)``: per coordinate, G kept here only.

    The square is added before the root is taken (DistBelief's appendix counts it in).
    """

    kept = Stateful.kept | {"rate": float, "_squares": dict[str, Array]}

    def __init__(self, rate: float = 0.05, *, epsilon: float = 1e-10) -> None:
        self.rate = rate
        self.epsilon = epsilon
        self._squares: dict[str, Array] = {}

    @property
    def squares(self) -> Mapping[str, Array]:
        """Sum of the squares of all gradients so far, by name."""
        return self._squares

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        before = self._squares.get(name)
        # Before the root, as DistBelief's appendix counts it.
        square = slope * slope if before is None else before + slope * slope
        self._squares[name] = square
        return cast_like(
            array - self.rate * slope / (np.sqrt(square) + self.epsilon), array
        )


class RmsProp(_EachAlone):
    """``V ← a·V + (1-a)·g²``, then ``w ← w - η·g/(√V + ε)`` (Tieleman, Hinton 2012)."""

    kept = Stateful.kept | {"rate": float, "_squares": dict[str, Array]}

    def __init__(
        self, rate: float = 0.01, *, kept: float = 0.99, epsilon: float = 1e-8
    ) -> None:
        self.rate = rate
        self.share_kept = kept
        self.epsilon = epsilon
        self._squares: dict[str, Array] = {}

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        square = blend(self._squares.get(name), slope * slope, self.share_kept)
        self._squares[name] = square
        width = np.sqrt(square) + self.epsilon
        return cast_like(array - self.rate * slope / width, array)


class AdaDelta(_EachAlone):
    """Steps as large as earlier ones were, against the gradient (Zeiler 2012, algorithm 1).

    ``V ← a·V + (1-a)·g²``, ``d = g·√(U + ε)/√(V + ε)``, ``U ← a·U + (1-a)·d²``,
    ``w ← w - η·d``: the ratio alone, without ``g``, would always step the same way.
    """

    kept = Stateful.kept | {
        "rate": float,
        "_squares": dict[str, Array],
        "_steps": dict[str, Array],
    }

    def __init__(
        self, rate: float = 1.0, *, kept: float = 0.95, epsilon: float = 1e-6
    ) -> None:
        self.rate = rate
        self.share_kept = kept
        self.epsilon = epsilon
        self._squares: dict[str, Array] = {}
        self._steps: dict[str, Array] = {}

    def _move(self, name: str, array: Array, slope: Array) -> Array:
        before = self._steps.get(name, np.zeros_like(slope))
        square = blend(self._squares.get(name), slope * slope, self.share_kept)
        way = slope * np.sqrt(before + self.epsilon) / np.sqrt(square + self.epsilon)
        self._squares[name] = square
        self._steps[name] = blend(before, way * way, self.share_kept)
        return cast_like(array - self.rate * way, array)


def blend(before: Array | None, fresh: Array, kept: float) -> Array:
    """Return ``kept * before + (1 - kept) * fresh``; nothing before counts as zeros."""
    part: Array = (1.0 - kept) * fresh
    return part if before is None else kept * before + part


def cast_like(array: Array, like: Array) -> Array:
    """Return `array` in the type of `like`."""
    return np.asarray(array, dtype=like.dtype)


KINDS: Mapping[str, type[Sgd | Momentum | Adam | Adagrad | RmsProp | AdaDelta]] = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
    "rmsprop": RmsProp,
    "adadelta": AdaDelta,
}
