"""Buffers of several answers made into one: BatchNorm's statistics, counters.

Rule: running means by number of samples; running variances by number of samples, plus the
spread of the means; whole numbers (counters) by the largest; any other array like a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stoilo.core.errors import TrustError
from stoilo.learn.momenta import USUAL, Momenta, share_of
from stoilo.learn.tensors import Array, Tensors
from stoilo.learn.work import Order, Reply

__all__ = ["keep_buffers", "pool_buffers"]

_MEAN, _VARIANCE = "running_mean", "running_var"
_COUNTER = "num_batches_tracked"
_USES = 64  # of one layer in one pass, at most


def keep_buffers(order: Order, reply: Reply) -> Reply:
    """Return the reply with what a volunteer may say of buffers: BatchNorm's statistics.

    All others (masks, tables) stay as the order's snapshot has them.

    Raises:
        TrustError: ``STO-T010`` when a variance is negative or a counter was not counted on.
    """
    base = order.snapshot.buffers
    most = _USES * int(str(order.settings.get("steps", 1)))
    for name, array in reply.buffers.items():
        if name.endswith(_VARIANCE) and (array < 0).any():
            raise TrustError(
                "STO-T010", f"a volunteer's answer is not used: {name} is negative"
            )
        if name.endswith(_COUNTER) and not 0 <= int(array - base[name]) <= most:
            raise TrustError(
                "STO-T010", f"a volunteer's answer is not used: {name} is miscounted"
            )
    kept = {
        name: reply.buffers.get(name, array)
        if name.endswith((_MEAN, _VARIANCE, _COUNTER))
        else array
        for name, array in base.items()
    }
    return replace(reply, buffers=kept if reply.buffers else {})


def pool_buffers(
    before: Tensors, replies: Sequence[Reply], momentum: float | Momenta = USUAL
) -> dict[str, Array]:
    """Return what one pass over all samples together would have left, nearly.

    Exact for means. A variance is what the pooled samples have, up to the estimate's
    correction n/(n-1): each answer's variance is unbiased, so shards of n samples
    overstate it by about 1/n.

    Args:
        before: the buffers that the replies started from: names, forms, order.
        replies: at least one; each brings every name.
        momentum: BatchNorm's, by which one pass moves its running values: the
            means of two shards differ `momentum` times as much as their batches' means do.
    """
    samples = [reply.samples for reply in replies]
    return {
        name: _pool(
            name, array, [reply.buffers for reply in replies], samples, momentum
        )
        for name, array in before.items()
    }


def _pool(
    name: str,
    like: Array,
    found: list[Tensors],
    samples: list[int],
    momentum: float | Momenta,
) -> Array:
    arrays = [buffers[name] for buffers in found]
    if not np.issubdtype(like.dtype, np.floating):
        return np.asarray(np.maximum.reduce(arrays))
    pooled = _average(arrays, samples)
    partner = name.removesuffix(_VARIANCE) + _MEAN
    if name.endswith(_VARIANCE) and partner in found[0]:
        means = [buffers[partner].astype(np.float64) for buffers in found]
        middle = _average(means, samples)
        spread = _average([(mean - middle) ** 2 for mean in means], samples)
        layer = partner.removesuffix(_MEAN)
        passes = float(found[0].get(layer + _COUNTER, np.ones(())))
        share = share_of(momentum, layer.removesuffix("."), passes)
        pooled = pooled + (spread / share if share else 0.0)
    return np.asarray(pooled, dtype=like.dtype)


def _average(arrays: Sequence[Array], samples: Sequence[int]) -> Array:
    total: Array = sum(
        (
            n * array.astype(np.float64)
            for n, array in zip(samples, arrays, strict=True)
        ),
        start=np.zeros(arrays[0].shape),
    )
    return total / sum(samples)
