"""Adding up replies of which some may be wrong: clipping, medians, trimming, Krum.

Volunteers are not trusted. `stoilo.learn.driver.acceptance` refuses what has a wrong form; what
has the right form and wrong numbers comes here. All rules look at a reply's *mean*
gradient (its sum divided by its samples), so that parts may differ in size, and give back
a *sum* over all samples that count, so that weights stay exact where nothing is wrong.

No rule is proof against a majority. Medians, trimming and Krum also misjudge honest parts
that differ much from each other (data split by class), and change honest steps a little:
they are to be asked for, while `Clip` is what trainers do unless told.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply
from stoilo.learn.core.states import Stateful
from stoilo.learn.core.tensors import Array, Tensors, add, is_finite, safe_norm, scale
from stoilo.learn.methods.rules import (
    DEFAULT_RULE,
    CentredClipping,
    Clip,
    CoordinateMedian,
    Krum,
    Mean,
    Near,
    Rule,
    TrimmedMean,
)


def is_sound(reply: Reply, size: float | None = None) -> bool:
    """Return whether all its numbers are finite and it has samples.

    `size`: the norm of its arrays, here and below, where that is known already.
    """
    size = safe_norm(reply.tensors) if size is None else size
    return (
        reply.samples > 0
        and math.isfinite(reply.loss_sum)
        and is_finite(reply.buffers)
        and math.isfinite(size)
    )


NORMS_KEPT = 200  # how many norms the running median looks back over


@dataclass(frozen=True, slots=True)
class Memory:
    """What rules remember between steps; part of a checkpoint."""

    # Of the last replies' mean gradients, as they came; of those of 0 only the newest
    # step's
    norms: tuple[float, ...] = ()
    centre: Tensors | None = None  # the last step's mean, for centred clipping
    samples: tuple[int, ...] = ()  # of the last replies

    def with_norms(self, norms: Sequence[float], samples: Sequence[int] = ()) -> Memory:
        """Return the memory with the newest norms added and the oldest gone.

        A norm of 0 stays until the next ones come: it says nothing, and any number of
        them must not displace what says how large an honest answer is.
        """
        room = max(NORMS_KEPT - sum(norm > 0.0 for norm in norms), 0)
        # Zeros cost a liar nothing: any number of them must not push the others out.
        earlier = [norm for norm in self.norms if norm > 0.0]
        kept = max(NORMS_KEPT, len(norms))
        return replace(
            self,
            norms=(*earlier[max(len(earlier) - room, 0) :], *norms),
            samples=(*self.samples, *samples)[-kept:],
        )


@dataclass(frozen=True, slots=True)
class Combined:
    """What came of the replies of one step."""

    tensors: Tensors  # the sum of gradients over `samples`, in the replies' types
    samples: int  # of the replies that are finite
    # Indices of the replies that are not finite or have no sample
    refused: tuple[int, ...]
    # Indices of replies that were shortened; for Krum, of those farthest off
    suspects: tuple[int, ...]
    memory: Memory  # for the next step


# A way is compared by its steps' number to this power: that of noise alone. Honest ways grow
# faster at first, which the factor covers; a larger power cuts more of the short ones and
# lets long ones push more (`bench/learn_robust.py`: 0.5 cuts least of 0.5, 0.6 and 0.75).
GROWTH = 0.5


def measure(size: float, samples: int, steps: int = 0) -> tuple[float, int]:
    """Return a norm as it is compared, and the samples that its noise comes from.

    Of a sum of gradients (no steps) by the sample, of a way by the step.
    """
    if not steps:
        return size / samples, samples
    return size / steps**GROWTH, math.ceil(samples / steps)


def clip(
    reply: Reply,
    memory: Memory,
    rule: Clip,
    *,
    steps: int = 0,
    size: float | None = None,
) -> tuple[Reply, Memory]:
    """Return a single reply as `rule` lets it count, for methods that wait for nobody.

    The reply must be sound. Its own norm is remembered, not what it was cut to. Of local
    steps it holds the way, and their number is the order's: a volunteer has no say in it.
    """
    size = safe_norm(reply.tensors) if size is None else size
    size, samples = measure(size, reply.samples, steps)
    after = memory.with_norms([size], [samples])
    # A way is no sum: of few samples a step, it has more noise and no less weight.
    factor = _clip_factor(size, samples, after, rule, power=0.5 if steps else 1.0)
    if factor == 1.0:
        return reply, after
    return replace(reply, tensors=_weighted([reply], [factor])), after


def compare(
    reply: Reply,
    memory: Memory,
    rule: Clip,
    *,
    steps: int = 0,
    size: float | None = None,
) -> float:
    """Return how many times the usual size a sound reply is; 1 while nothing is known."""
    size = safe_norm(reply.tensors) if size is None else size
    size, samples = measure(size, reply.samples, steps)
    once = replace(rule, factor=1.0)
    power = 0.5 if steps else 1.0
    return 1.0 / _clip_factor(size, samples, memory, once, power=power)


def combine(
    replies: Sequence[Reply], rule: Rule = DEFAULT_RULE, memory: Memory | None = None
) -> Combined:
    """Return the weighted sum of `replies` by `rule`.

    Replies of one step with the same names, types and shapes (as accepted). Those that
    are not finite are left out by every rule.

    Raises:
        UsageError: ``STO-T060`` when no reply is finite or too few are left for `rule`.
    """
    memory = memory or Memory()
    sizes = [safe_norm(reply.tensors) for reply in replies]
    sound = [i for i, one in enumerate(replies) if is_sound(one, sizes[i])]
    good = [replies[index] for index in sound]
    if not good:
        raise _too_few(0, 1)
    means = [sizes[i] / replies[i].samples for i in sound]
    memory = memory.with_norms(means, [reply.samples for reply in good])
    samples = sum(reply.samples for reply in good)
    with np.errstate(over="ignore", invalid="ignore"):  # the next check sees it
        tensors, suspects = _apply(rule, good, memory)
    memory = replace(memory, centre=_kept_centre(rule, tensors, samples))
    return Combined(
        tensors,
        samples,
        tuple(sorted(set(range(len(replies))) - set(sound))),
        tuple(sound[index] for index in suspects),
        memory,
    )


class RobustSum(Stateful):
    """What a synchronous method adds a step's replies up with (its ``combine``).

    Unlike clipping on arrival, it sees a whole step before anything counts: the first
    reply of a run is bounded like the last.

    Attributes:
        rule: how.
        memory: what it remembers.
        last: what came of the last step: who was refused, who is suspect.
    """

    kept = Stateful.kept | {"memory": Memory}

    def __init__(self, rule: Rule = DEFAULT_RULE, memory: Memory | None = None) -> None:
        self.rule = rule
        self.memory = memory or Memory()
        self.last: Combined | None = None

    def __call__(self, replies: Sequence[Reply]) -> Tensors:
        """Return the sum, scaled as if those who were refused agreed with the others.

        Raises:
            UsageError: ``STO-T060``.
        """
        self.last = combine(replies, self.rule, self.memory)
        self.memory = self.last.memory
        # As if those who were refused agreed: weights stay those of the whole step.
        samples = sum(max(reply.samples, 0) for reply in replies)
        return scale(self.last.tensors, samples / self.last.samples)


def _apply(
    rule: Rule, good: Sequence[Reply], memory: Memory
) -> tuple[Tensors, Sequence[int]]:
    """Return the sum by `rule`, and which of `good` did not count in full."""
    samples = sum(reply.samples for reply in good)
    match rule:
        case Near() if len(good) < rule.least:
            return _apply(Clip(), good, memory)
        case Near():
            return _near(good, samples, rule)
        case Mean() | Clip():
            return _clipped(good, memory, rule)
        case CoordinateMedian() | TrimmedMean():
            share = 0.5 if isinstance(rule, CoordinateMedian) else rule.share
            return _by_coordinate(good, samples, share), ()
        case Krum():
            return _krum(good, samples, rule)
        case CentredClipping():
            return _centred(good, samples, memory.centre, rule), ()
    assert_never(rule)


def _clipped(
    good: Sequence[Reply], memory: Memory, rule: Mean | Clip
) -> tuple[Tensors, Sequence[int]]:
    if isinstance(rule, Mean):
        return _weighted(good, [1.0] * len(good)), ()
    sizes = memory.norms[-len(good) :]
    factors = [
        _clip_factor(size, reply.samples, memory, rule)
        for size, reply in zip(sizes, good, strict=True)
    ]
    suspects = [index for index, factor in enumerate(factors) if factor < 1.0]
    return _weighted(good, factors), suspects


def _clip_factor(
    size: float, samples: int, memory: Memory, rule: Clip, power: float = 1.0
) -> float:
    known = [
        norm for norm in memory.norms if norm > 0.0
    ]  # who brings nothing says nothing
    if len(known) < rule.least:
        return 1.0
    # The mean of few samples varies more, and counts for less.
    fewer = (statistics.median(memory.samples or [0]) / samples) ** power
    allowed = rule.factor * statistics.median(known) * max(1.0, fewer)
    return 1.0 if size <= allowed else allowed / size


def _near(
    good: Sequence[Reply], samples: int, rule: Near
) -> tuple[Tensors, Sequence[int]]:
    distances, entries = _distances(good), sum(a.size for a in _every(good).values())
    others = distances[~np.eye(len(good), dtype=bool)].reshape(len(good), -1)
    apart = np.sqrt(np.median(others, axis=1))
    counts = np.array([reply.samples for reply in good], np.float64)
    allowed = np.sqrt(np.maximum(1.0, np.median(counts) / counts)) * np.median(apart)
    # Of few entries, honest distances scatter more.
    far = apart > rule.factor * (1.0 + 1.0 / math.sqrt(max(entries, 1))) * allowed
    if not far.any():
        return _weighted(good, [1.0] * len(good)), ()
    return _centred(good, samples, None, CentredClipping()), np.flatnonzero(
        far
    ).tolist()


def _weighted(good: Sequence[Reply], factors: Sequence[float]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, array in _every(good).items():
        total = np.zeros(array.shape, np.float64)
        for reply, factor in zip(good, factors, strict=True):
            if name in reply.tensors:
                total += factor * reply.tensors[name].astype(np.float64)
        found[name] = total.astype(array.dtype)
    return found


def _every(good: Sequence[Reply]) -> dict[str, Array]:
    # A gradient may be absent in some replies.
    found: dict[str, Array] = {}
    for reply in good:
        for name, array in reply.tensors.items():
            found.setdefault(name, array)
    return found


def _stacked(good: Sequence[Reply], name: str) -> NDArray[np.float64]:
    """Return one array's means, ``(replies, entries) float64``."""
    like = _every(good)[name]
    rows = [
        r.tensors.get(name, np.zeros_like(like)).ravel().astype(np.float64) / r.samples
        for r in good
    ]
    return np.stack(rows)


def _by_coordinate(
    good: Sequence[Reply], samples: int, share: float
) -> dict[str, Array]:
    """Return `samples` times each coordinate's mean without `share` at both ends."""
    if not 0.0 <= share <= 0.5:  # noqa: PLR2004 - half at each end leaves the median
        raise UsageError("STO-T040", f"cannot trim {share} at each end: at most 0.5")
    cut = min(math.floor(share * len(good)), (len(good) - 1) // 2)
    found: dict[str, Array] = {}
    for name, array in _every(good).items():
        rows = np.sort(_stacked(good, name), axis=0)[cut : len(good) - cut]
        mean = samples * rows.mean(axis=0)
        found[name] = mean.reshape(array.shape).astype(array.dtype)
    return found


def _krum(
    good: Sequence[Reply], samples: int, rule: Krum
) -> tuple[Tensors, Sequence[int]]:
    # A fifth: more would leave too few neighbours with a handful of parts.
    wrong = math.ceil(len(good) / 5) if rule.wrong is None else rule.wrong
    near = len(good) - wrong - 2
    if near < 1 or not 1 <= rule.chosen <= len(good):
        raise _too_few(len(good), max(wrong + 3, rule.chosen))
    distances = _distances(good)
    # From 1 on: the nearest reply to each is itself.
    scores = np.sort(distances, axis=1)[:, 1 : near + 1].sum(axis=1)
    # Stable: equal scores must not depend on the machine's sort.
    order = np.argsort(scores, kind="stable").tolist()
    picked = [good[index] for index in order[: rule.chosen]]
    factors = [samples / (reply.samples * rule.chosen) for reply in picked]
    return _weighted(picked, factors), sorted(order[len(good) - wrong :])


def _distances(good: Sequence[Reply]) -> NDArray[np.float64]:
    """Return the squared distances between all means, ``(replies, replies)``."""
    found = np.zeros((len(good), len(good)))
    with np.errstate(over="ignore"):  # far away is far away
        for name in sorted(_every(good)):  # in an order that no restart changes
            rows = _stacked(good, name)
            for index, row in enumerate(rows):
                gaps = rows[index + 1 :] - row
                found[index, index + 1 :] += np.einsum("ij,ij->i", gaps, gaps)
    return found + found.T


def _centred(
    good: Sequence[Reply], samples: int, start: Tensors | None, rule: CentredClipping
) -> dict[str, Array]:
    like = _every(good)
    means = [_mean_of(reply, like) for reply in good]
    centre = (
        dict(start) if start is not None else _doubled(_by_coordinate(good, 1, 0.5))
    )
    for _ in range(rule.rounds):
        differences = [add(mean, centre, -1.0) for mean in means]
        sizes = [safe_norm(difference) for difference in differences]
        radius = statistics.median(sizes) if rule.radius is None else rule.radius
        shares = [min(1.0, radius / size) if size else 1.0 for size in sizes]
        for difference, share in zip(differences, shares, strict=True):
            centre = add(centre, difference, share / len(good))
    return {n: np.asarray(samples * a, like[n].dtype) for n, a in centre.items()}


def _mean_of(reply: Reply, like: Tensors) -> dict[str, Array]:
    """Return a reply's mean in doubles, zeros where it has nothing."""
    found = {n: reply.tensors.get(n, np.zeros_like(a)) for n, a in like.items()}
    return {n: np.asarray(a / reply.samples) for n, a in _doubled(found).items()}


def _doubled(tensors: Tensors) -> dict[str, Array]:
    # Rows first, as a checkpoint gives them back: products differ by it in the last bit.
    return {n: np.array(a, np.float64, order="C") for n, a in tensors.items()}


def _kept_centre(rule: Rule, tensors: Tensors, samples: int) -> Tensors | None:
    if not isinstance(rule, CentredClipping):
        return None
    return {n: np.asarray(a / samples) for n, a in _doubled(tensors).items()}


def _too_few(have: int, need: int) -> UsageError:
    return UsageError(
        "STO-T060",
        f"{have} finite replies, and the rule needs {need}",
        hint="ask for more parts a step, or take a rule that needs fewer",
    )
