"""Differential privacy of a model: each part's share is cut, the sum is noised, ε is counted.

The unit is a *data part*: ε bounds what the versions of a model tell about whether a part took
part, with all that is in it. (What a single sample did in it, a kernel would have to cut: it
gives a sum.) For a part that is *exchanged* for another one, take twice the noise. A private
step is

    mean of a step = (Σ over parts of cut(mean of the part) + N(0, (noise · clip)²)) / parts

with a bound and a number of parts that no data decides, and noise on every parameter. Numbers
and sizes of parts, and when a part answers, are not hidden.

It protects a part from who reads the model or any of its versions: other volunteers among
them. It does not protect it from the trainer, which sees each answer, nor from the volunteers
that compute the part, nor from who reads the checkpoint's folder or the losses of a training.
Doubles have low bits of their own, by which noise can be told apart (Mironov 2012): that is
not hindered here.

Sources: Gaussian noise, Abadi et al. 2016; parts as the unit, McMahan et al. 2018; Rényi
privacy of order a is a/(2·noise²) a step and adds up, Mironov 2017 (prop. 1 and 7); from it
to ε and δ, Canonne, Kamath and Steinke 2020 (prop. 12), Balle et al. 2020 (theorem 21). No
gain is counted for steps that leave parts out: that would need a choice by chance.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Method, Reply
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Tensors, flatten, safe_norm, scale, unflatten
from stoilo.learn.methods.synchronous import (
    LargeMinibatch,
    Synchronous,
    sum_gradients,
)

Entropy = Callable[[int], bytes]  # so many bytes that nobody can foresee


@dataclass(frozen=True, slots=True)
class Privacy:
    """How much of a data part the versions of a model may tell.

    Attributes:
        clip: longest mean gradient (of local steps: longest way) with which a part counts.
        noise: standard deviation of the noise on the sum of the parts, in `clip`.
        delta: δ of the ε that an epoch's metrics name; far below one over the parts.
        seed: of the noise, for tests: who knows it can take the noise off again. From the
            operating system when None.
    """

    clip: float
    noise: float
    delta: float = 1e-5
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what protects nothing."""
        finite = 0.0 < self.clip < math.inf and 0.0 < self.noise < math.inf
        if not finite or not 0.0 < self.delta < 1.0 or (self.seed or 0) < 0:
            raise UsageError(
                "STO-T040",
                f"clip {self.clip}, noise {self.noise}, delta {self.delta} and seed"
                f" {self.seed} make no training private",
                hint="clip and noise > 0 and finite, 0 < delta < 1, seed ≥ 0 or None",
            )


# Any order gives a bound that holds; so many are within a hundred thousandth of the best.
_ABOVE_ONE = np.geomspace(1e-2, 1e6, 8000)


def find_epsilon(spent: float, delta: float) -> float:
    """Return ε at δ of Gaussian steps whose Rényi privacy of order a is ``spent · a``."""
    orders = 1.0 + _ABOVE_ONE
    known = np.log1p(-1.0 / orders) - np.log(delta * orders) / _ABOVE_ONE
    return max(0.0, float(np.min(spent * orders + known)))


def draw_normals(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """Return independent standard normal numbers, of 16 bytes each (Box and Muller 1958)."""
    raw = np.frombuffer(entropy(16 * count), np.uint64).reshape(2, count)
    even = ((raw >> np.uint64(11)) + np.uint64(1)) * 2.0**-53  # above 0, at most 1
    return np.asarray(np.sqrt(-2.0 * np.log(even[0])) * np.cos(math.tau * even[1]))


class PrivateSum(Stateful):
    """What a synchronous method adds a step's replies up with (its ``combine``).

    Attributes:
        privacy: how much is cut and noised.
        steps: noised so far; killed processes' included, as the checkpoint has it.
    """

    kept = Stateful.kept | {"steps": int, "_spent": float}

    def __init__(
        self,
        privacy: Privacy,
        parts: int,  # in a step, whether they answer or not
        like: Tensors,  # the parameters: each is noised, with or without a gradient
        entropy: Entropy = os.urandom,
    ) -> None:
        self.privacy, self.steps = privacy, 0
        self._parts, self._like, self._entropy = parts, like, entropy
        self._spent = 0.0  # Rényi privacy of order 1

    @property
    def epsilon(self) -> float:
        """ε of all steps together, at the settings' δ."""
        return find_epsilon(self._spent, self.privacy.delta)

    def __call__(self, replies: Sequence[Reply]) -> Tensors:
        """Return the noised mean of the parts, times the samples of the replies."""
        with np.errstate(under="ignore"):
            total = sum_gradients([self._cut(reply) for reply in replies])
        zeros = {name: np.zeros(a.shape) for name, a in self._like.items()}
        exact = flatten(zeros | total)
        spread = self.privacy.noise * self.privacy.clip
        noised = exact + spread * draw_normals(exact.size, self._draw())
        self.steps += 1
        self._spent += 0.5 / self.privacy.noise**2
        # The method divides by its samples: what is left is divided by a fixed number.
        samples = sum(reply.samples for reply in replies)
        return unflatten(noised * (samples / self._parts), zeros)

    def _cut(self, reply: Reply) -> Reply:
        mean = scale(_doubles(reply.tensors), 1.0 / reply.samples)
        size = safe_norm(mean)
        share = min(1.0, self.privacy.clip / size) if size else 1.0
        return Reply(reply.version, 1, 0.0, scale(mean, share))

    def _draw(self) -> Entropy:
        if self.privacy.seed is None:
            return self._entropy
        # By the step: a run that goes on draws what it would have drawn, and nothing twice.
        place = self.privacy.seed, self.steps
        return np.random.Generator(np.random.PCG64(place)).bytes


def _doubles(tensors: Tensors) -> Tensors:
    return {name: array.astype(np.float64) for name, array in tensors.items()}


def make_private(method: Method, privacy: Privacy, parts: int) -> PrivateSum:
    """Let a method made anew of so many parts cut and noise; return what counts ε.

    Raises:
        UsageError: ``STO-T040`` for a method or mix of settings of which ε would be untrue.
    """
    first = method.snapshot
    if type(method) not in (Synchronous, LargeMinibatch):
        raise _refuse(f"{type(method).__name__} does not add up plain rounds")
    assert isinstance(method, Synchronous)  # noqa: S101 - for the type checker
    if method.combine is not sum_gradients:
        raise _refuse("a robust rule weighs a part by what is in the others")
    if method.settings.late == "queue":
        raise _refuse("an answer that is queued counts beside its part's next one")
    if first.buffers:
        raise _refuse("statistics of BatchNorm travel without noise: use GroupNorm")
    private = PrivateSum(privacy, parts, first.parameters)
    method.combine = private
    return private


def _refuse(why: str) -> UsageError:
    return UsageError(
        "STO-T040",
        f"this training cannot be private: {why}",
        hint="privacy= goes with SynchronousTrainer, LargeMinibatchTrainer and"
        " DPBGDTrainer on data of their own, rule=None and late='discard'",
    )
