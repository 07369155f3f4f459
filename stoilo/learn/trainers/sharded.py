"""Layers too wide for one volunteer, shard by shard: see `stoilo.learn.methods.evaluating`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel, Kernel
from stoilo.learn.core.tensors import Array, Tensors
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.kernels import shards as kernels
from stoilo.learn.methods.evaluating import Sharded, Vocabulary, Wide
from stoilo.learn.trainers.options import TrainerOptions, open_backend

if TYPE_CHECKING:
    from stoilo.learn.trainers.options import Place


class ShardModel(ArrayModel):
    """Shards' kernels and the researcher's function, if any; each order brings weights."""

    looks: ClassVar[Mapping[str, object]] = {}  # no shard is computed here beforehand

    def kernel(self, name: str) -> Kernel:
        """Return a shard's kernel."""
        found: Kernel = getattr(kernels, name)
        return found


async def apply_wide(
    conn: Place,
    x: Array,
    shards: Sequence[Tensors],
    function: Callable[[Tensors, Any], Any],
    shape: tuple[int, ...],
    options: TrainerOptions | None = None,
) -> Array:
    """Return ``function(shard, x)`` summed over the shards, in their order: inference.

    Of a layer ``GeLU(x·A + a)·B`` a shard holds columns of ``A`` and ``a`` with as many rows of
    ``B``; what is added once, add here. A wrong answer of the right form counts, so let copies
    agree: ``options=TrainerOptions(redundancy=CreateOptions(min_quorum=2))``.

    Args:
        conn: a connection, a backend, or None for threads here.
        x: samples first; ``options.tasks`` parts of it go out.
        shards: the weights of each.
        function: ``(weights, x) -> (samples, *shape)``; travels as source.
        shape: of one sample's output.
        options: as a trainer's, as far as it does not train.
    """
    of = options or TrainerOptions(tasks=1)
    parts = _cut(x, np.zeros(len(x), np.int8), of)
    method = Wide(shards, [len(part) for part in parts], shape)
    await _run(conn, method, function, parts, of)
    return method.output()


async def vocabulary_loss(
    conn: Place,
    x: Array,
    y: Array,
    shards: Sequence[Tensors],
    *,
    smoothing: float = 0.0,
    ignored: int = -100,
    options: TrainerOptions | None = None,
) -> tuple[float, Array]:
    """Return the mean cross-entropy over a vocabulary in shards, and its slope at `x`.

    As ``torch.nn.functional.cross_entropy`` of ``x·Wᵀ + b``, with labels smoothed over the
    whole vocabulary, while nobody sees more than a shard's logits. A wrong answer of the right
    form counts: see `apply_wide`.

    Args:
        conn: a connection, a backend, or None for threads here.
        x: of tokens, (tokens, width).
        y: their words, (tokens,).
        shards: ``weight`` (words, width) and ``bias`` (words) of each.
        smoothing: of the labels.
        ignored: the target of tokens that do not count.
        options: as a trainer's, as far as it does not train.
    """
    of = options or TrainerOptions(tasks=1)
    parts = _cut(x, y, of)
    targets = [np.asarray(part.y) for part in parts]
    method = Vocabulary(shards, targets, smoothing, ignored)
    await _run(conn, method, None, parts, of)
    return method.loss(), method.slope()


def _cut(x: Array, y: Array, of: TrainerOptions) -> list[Part]:
    """Return parts in the samples' order: the answers are put together in it."""
    tasks = min(len(x), of.tasks)
    cut = zip(np.array_split(x, tasks), np.array_split(y, tasks), strict=True)
    return [Part(some, theirs) for some, theirs in cut]


async def _run(
    conn: Place,
    method: Sharded,
    function: Any,  # noqa: ANN401 - the researcher's, none for a vocabulary
    parts: Sequence[Part],
    of: TrainerOptions,
) -> None:
    backend = open_backend(conn, of.redundancy, of.flavor, of.limits)
    most, model = of.in_flight or 16, ShardModel({"nobody's": np.zeros(1)}, function)
    settings = RunSettings("shards", most, of.tries, clip=None, folder=of.folder)
    try:
        async with Run(method, model, parts, backend, settings) as run:
            await run.finish()
    finally:
        if backend is not conn:
            await backend.close()
