"""Buffers of several answers made into one: BatchNorm's statistics, counters.

Rule: running means by number of samples; running variances by number of samples, plus the
spread of the means; whole numbers (counters) by the median; any other array like a mean.

No answer changes a buffer by much more than others did (`BufferBounds`): one lie about a
variance would otherwise spoil what the model says outside of training.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stoilo.learn.core.orders import Order, Reply, refuse_answer
from stoilo.learn.core.tensors import Array, Tensors, safe_norm
from stoilo.learn.methods.rules import Clip

if TYPE_CHECKING:
    from torch import nn

    from stoilo.learn.core.data import Part

_MEAN, _VARIANCE = "running_mean", "running_var"
_COUNTER = "num_batches_tracked"
_USES = 64  # of one layer in one pass, at most
_KEPT = 200  # changes that a median looks back over
# Statistics differ more between honest parts than gradients do: times `Clip.factor`.
_ALLOWANCE = 3.0


def keep_buffers(order: Order, reply: Reply) -> Reply:
    """Return the reply with what a volunteer may say of buffers: BatchNorm's statistics.

    All others (masks, tables) stay as the order's snapshot has them.

    Raises:
        TrustError: ``STO-T010`` when a variance is negative or a counter was not counted on.
    """
    # Only BatchNorm's may change: a mask or a table is not a volunteer's to write.
    base = order.snapshot.buffers
    most = _USES * int(str(order.settings.get("steps", 1)))
    for name, array in reply.buffers.items():
        if name.endswith(_VARIANCE) and (array < 0).any():
            raise refuse_answer(f"{name} is negative")
        if name.endswith(_COUNTER) and not 0 <= int(array - base[name]) <= most:
            raise refuse_answer(f"{name} is miscounted")
    kept = {
        name: reply.buffers.get(name, array)
        if name.endswith((_MEAN, _VARIANCE, _COUNTER))
        else array
        for name, array in base.items()
    }
    return replace(reply, buffers=kept if reply.buffers else {})


class BufferBounds:
    """How far answers have moved each buffer, and the bound that follows for the next."""

    def __init__(self) -> None:
        self._moves: dict[str, tuple[float, ...]] = {}
        self._steps: tuple[int, ...] = ()  # of the last answers
        self._samples: tuple[int, ...] = ()  # in a step of theirs

    def begin(self, moves: Mapping[str, float], count: int) -> None:
        """Take what answers computed here did, counted as so many answers."""
        for name, move in moves.items():
            self._note(name, move, count)

    def bound(self, before: Tensors, reply: Reply, rule: Clip, steps: int = 1) -> Reply:
        """Return the reply, a buffer that went too far shortened on its way from `before`.

        Args:
            before: the buffers of the order's snapshot.
            reply: the answer.
            rule: how much longer than usual is too far.
            steps: passes that the order asks for.

        Raises:
            TrustError: ``STO-T010`` when the way itself is beyond every number.
        """
        allowance = rule.factor * _ALLOWANCE * self._expect(steps, reply.samples)
        cut = {
            name: self._shorten(name, before[name], array, rule.least, allowance)
            for name, array in reply.buffers.items()
            if np.issubdtype(array.dtype, np.floating)
        }
        if all(array is reply.buffers[name] for name, array in cut.items()):
            return reply
        return replace(reply, buffers={**reply.buffers, **cut})

    def _expect(self, steps: int, samples: int) -> float:
        """Return how many times as far as usual so many steps may lead, for what is honest."""
        each = math.ceil(samples / steps)
        self._steps = (*self._steps, steps)[-_KEPT:]
        self._samples = (*self._samples, each)[-_KEPT:]
        usual = statistics.median(self._steps), statistics.median(self._samples)
        # Running values near the data's own; those of few samples have more noise.
        further = (1.0 - (1.0 - USUAL) ** steps) / (1.0 - (1.0 - USUAL) ** usual[0])
        return float(max(1.0, further) * math.sqrt(max(1.0, usual[1] / each)))

    def _shorten(
        self, name: str, before: Array, array: Array, least: int, allowance: float
    ) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # the next check sees it
            way = array.astype(np.float64) - before
        size = safe_norm({name: way})
        if not np.isfinite(size):
            raise refuse_answer(f"{name} went beyond numbers")
        before_it = self._moves.get(name, ())
        known = [move for move in self._note(name, size) if move > 0.0]
        # A buffer that honest answers leave alone is nobody's to move.
        if len(before_it) >= least and _rests(before_it):
            return before if size else array
        allowed = allowance * statistics.median(known or [size])
        if len(known) < least or size <= allowed:
            return array
        return np.asarray(before + allowed / size * way, array.dtype)

    def _note(self, name: str, move: float, count: int = 1) -> tuple[float, ...]:
        moves = (*self._moves.get(name, ()), *[move] * count)[-_KEPT:]
        self._moves[name] = moves
        return moves


def _rests(moves: Sequence[float]) -> bool:
    # Half of the answers or more left the buffer as it was.
    return statistics.median_low(moves) == 0.0


USUAL = 0.1  # torch's default


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that keeps running statistics."""

    name: str  # as its buffers have it in front
    # Of the running statistics; None for a cumulative average, whose share is one
    # over the number of passes
    momentum: float | None = USUAL
    # Of each channel in one sample (1, or the size of an image there); 0 where that
    # is not known, or the layer is used several times in a pass
    values: int = 0

    def share(self, passes: float) -> float:
        """Return the share of the last of so many passes in the statistics."""
        if self.momentum is None:
            return 1.0 / max(1.0, passes)
        return self.momentum


@dataclass(frozen=True, slots=True)
class Momenta:
    """Those of a model; the same for all layers that are not among `layers`."""

    layers: tuple[Layer, ...] = ()
    usual: float = USUAL

    def find(self, name: str) -> Layer:
        """Return what is known of the layer called `name`."""
        known = {layer.name: layer for layer in self.layers}
        return known.get(name) or Layer(name, self.usual)


def find_momentum(module: nn.Module, part: Part | None = None) -> Momenta:
    """Return the momentum of each layer that keeps running statistics.

    Args:
        module: the model.
        part: samples as the model will see them, to count a layer's values with.
    """
    found = {
        name: layer
        for name, layer in module.named_modules()
        if getattr(layer, "running_var", None) is not None
        and hasattr(layer, "momentum")
    }
    values = _count_values(module, [*found], part) if part is not None else {}
    return Momenta(
        tuple(
            Layer(name, _momentum_of(layer), values.get(name, 0))
            for name, layer in found.items()
        )
    )


def _momentum_of(layer: Any) -> float | None:  # noqa: ANN401 - torch's or one's own
    return None if layer.momentum is None else float(layer.momentum)


def _count_values(module: nn.Module, names: list[str], part: Part) -> dict[str, int]:
    """Return how many values of a channel one sample has in each layer, where once used."""
    import torch  # noqa: PLC0415 - only with a module

    few, copied = part.take(slice(0, 1)), copy.deepcopy(module).eval()
    seen: dict[str, list[int]] = {name: [] for name in names}
    for name in names:
        copied.get_submodule(name).register_forward_hook(
            lambda _, given, __, kept=seen[name]: kept.append(
                given[0].numel() // given[0].shape[1]
            )
        )
    inputs = few.x if isinstance(few.x, tuple) else (few.x,)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            copied(*[torch.as_tensor(one) for one in inputs])
    except Exception:  # noqa: BLE001 - the researcher's own code: volunteers report it
        return {}
    return {name: counts[0] for name, counts in seen.items() if len(counts) == 1}


def pool_buffers(
    before: Tensors, replies: Sequence[Reply], momentum: float | Momenta = USUAL
) -> dict[str, Array]:
    """Return what one pass over all samples together would have left, nearly.

    Exact for means, and for variances of layers whose `Layer.values` is known. Of others a
    variance is what the pooled samples have, up to the estimate's correction n/(n-1): each
    answer's variance is unbiased, so shards of n samples overstate it by about 1/n.

    Args:
        before: the buffers that the replies started from: names, forms, order.
        replies: at least one; each brings every name.
        momentum: BatchNorm's, by which one pass moves its running values: the
            means of two shards differ `momentum` times as much as their batches' means do.
    """
    momenta = momentum if isinstance(momentum, Momenta) else Momenta((), momentum)
    samples = [reply.samples for reply in replies]
    return {
        name: _pool(name, array, [reply.buffers for reply in replies], samples, momenta)
        for name, array in before.items()
    }


def _pool(
    name: str,
    like: Array,
    found: list[Tensors],
    samples: list[int],
    momenta: Momenta,
) -> Array:
    arrays = [buffers[name] for buffers in found]
    if not np.issubdtype(like.dtype, np.floating):
        # The median: one lying counter would move a mean.
        return np.asarray(np.sort(arrays, axis=0)[len(arrays) // 2])
    layer = name.removesuffix(_VARIANCE)
    if name.endswith(_VARIANCE) and layer + _MEAN in found[0]:
        known = momenta.find(layer.removesuffix("."))
        pooled = _pool_variances(layer, like, found, samples, known)
    else:
        pooled = _average(arrays, samples)
    return np.asarray(pooled, dtype=like.dtype)


def _pool_variances(
    prefix: str, like: Array, found: list[Tensors], samples: list[int], layer: Layer
) -> Array:
    """Return the running variance after one pass over all samples.

    An answer's is ``(1 - s)·before + s·v``, its mean likewise: `s` is the layer's share,
    `v` its batch's variance with n - 1 in the denominator.
    """
    counted = [buffers.get(prefix + _COUNTER, np.ones(())) for buffers in found]
    share = layer.share(float(statistics.median_high(map(float, counted))))
    moved = [buffers[prefix + _VARIANCE].astype(np.float64) for buffers in found]
    means = [buffers[prefix + _MEAN].astype(np.float64) for buffers in found]
    if not share:
        return _average(moved, samples)
    middle = _average(means, samples)
    spread = _average([(mean - middle) ** 2 for mean in means], samples) / share
    sizes = [layer.values * n for n in samples]
    if min(sizes) < 2:  # noqa: PLR2004 - one value has no variance; 0: nobody knows
        return _average(moved, samples) + spread
    kept = (1.0 - share) * like
    inside = [
        (var - kept) * (1.0 - 1.0 / n) for var, n in zip(moved, sizes, strict=True)
    ]
    batch = (_average(inside, samples) + spread) / (1.0 - 1.0 / sum(sizes))
    # Rounding may leave a little less than nothing, and a root is taken of it.
    return np.maximum(kept + batch, 0.0)


def _average(arrays: Sequence[Array], samples: Sequence[int]) -> Array:
    total: Array = sum(
        (
            n * array.astype(np.float64)
            for n, array in zip(samples, arrays, strict=True)
        ),
        start=np.zeros(arrays[0].shape),
    )
    return total / sum(samples)
