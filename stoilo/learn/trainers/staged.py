"""Models in stages and layers in shards: a task computes with its own piece alone.

See `stoilo.learn.methods.staged` and `stoilo.learn.methods.evaluating`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel, Kernel, TorchModel
from stoilo.learn.core.tensors import Array, Form, Tensors
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.kernels import shards as kernels_of_shards
from stoilo.learn.methods.evaluating import Sharded, Vocabulary, Wide
from stoilo.learn.methods.staged import Staged, StagedSettings
from stoilo.learn.trainers.options import TrainerOptions, as_parts, open_backend
from stoilo.learn.trainers.trainer import Trainer

if TYPE_CHECKING:
    from torch import nn

    from stoilo.learn.methods.optimizers import Optimizer
    from stoilo.learn.trainers.options import Loss, Place


@dataclass(frozen=True)
class StagedModel(TorchModel):
    """A `TorchModel` whose module is a ``torch.nn.Sequential`` of stages."""

    # Of one stage nothing can be computed here ahead of the others
    looks: ClassVar[Mapping[str, object]] = {}

    def __post_init__(self) -> None:
        """Refuse what cannot be cut."""
        super().__post_init__()
        found: Any = self.module  # a sequence
        if [*found.buffers()]:
            raise UsageError(
                "STO-T001",
                "a stage has buffers, of which several groups under way make several",
                hint="LayerNorm or GroupNorm in the place of BatchNorm",
            )
        each = sum(len([*stage.parameters()]) for stage in found)
        if each > len([*found.parameters()]):
            raise UsageError("STO-T001", "two stages share a parameter")

    def kernel(self, name: str) -> Kernel:
        """Return a stage's kernel, or one of the whole model."""
        from stoilo.learn.kernels import stages  # noqa: PLC0415 - needs torch

        known: dict[str, Kernel] = {one: getattr(stages, one) for one in stages.__all__}
        return known.get(name) or super().kernel(name)

    def outputs(self, part: Part) -> list[Form]:
        """Return what each stage but the last makes of a sample, by running two here.

        Raises:
            UsageError: ``STO-T001`` where that is not one floating array, samples first.
        """
        import torch  # noqa: PLC0415 - only with a module

        from stoilo.learn.kernels import torch_models  # noqa: PLC0415 - needs torch

        kernels: Any = torch_models  # untyped: they travel as source
        stages: Any = self.module
        few, found = part.take(slice(0, 2)), list[Form]()
        x = kernels.take(few.x, None)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for place, stage in enumerate(stages[:-1]):
                x = kernels.apply(stage, x)
                is_one = isinstance(x, torch.Tensor) and x.is_floating_point()
                if not is_one or not x.ndim or len(x) != len(few):
                    raise UsageError(
                        "STO-T001",
                        f"stage {place} does not give one floating array, samples first",
                    )
                found.append(Form(str(x.numpy().dtype), tuple(x.shape[1:])))
        return found


class StagedTrainer(Trainer):
    """A pipeline of tasks: the model's stages on volunteers, several groups under way.

    An activation cannot be bounded as a gradient is, and a wrong one spoils all that comes
    after it: at a server let copies agree (``redundancy=CreateOptions(min_quorum=2)``). The
    bound on answers and checks at home know whole models only, and are off.

    Args:
        stages: modules, each taking what the one before gives; copied, not changed.
        loss: ``(output, target) -> scalar``, mean over the samples.
        optimizer: of `stoilo.learn.methods.optimizers`; a copy is used.
    """

    def __init__(
        self,
        conn: Place,
        stages: Sequence[nn.Module],
        data: object,
        settings: StagedSettings,
        optimizer: Optimizer,
        *,
        loss: Loss,
        options: TrainerOptions | None = None,
    ) -> None:
        from torch import nn  # noqa: PLC0415 - only with modules

        usual, options = TrainerOptions(), options or TrainerOptions()
        for name in ("privacy", "transport", "downlink"):
            if getattr(options, name) != getattr(usual, name):
                raise UsageError("STO-T040", f"{name} is for whole models, not stages")
        model = StagedModel(nn.Sequential(*copy.deepcopy([*stages])), loss)
        parts = as_parts(data, options)
        make = functools.partial(
            Staged,
            outputs=model.outputs(parts[0]),
            settings=settings,
            optimizer=copy.deepcopy(optimizer),
        )
        most = options.in_flight or settings.in_flight or len(stages)
        options = replace(options, clip=None, home_checks=0.0, in_flight=most)
        dealt = deal_parts(parts) if len(stages) > 1 else parts
        super().__init__(conn, model, dealt, make, options=options, name="staged")


def deal_parts(parts: Sequence[Part]) -> list[Part]:
    """Return inputs, targets and an empty part: nobody fetches what his stage does not need."""
    none = [np.zeros(len(part), np.int8) for part in parts]
    inputs = [Part(part.x, no) for part, no in zip(parts, none, strict=True)]
    targets = [Part(no, part.y) for part, no in zip(parts, none, strict=True)]
    return [*inputs, *targets, Part(none[0][:1], none[0][:1])]


class ShardModel(ArrayModel):
    """Shards' kernels and the researcher's function, if any; each order brings weights."""

    looks: ClassVar[Mapping[str, object]] = {}  # no shard is computed here beforehand

    def kernel(self, name: str) -> Kernel:
        """Return a shard's kernel."""
        found: Kernel = getattr(kernels_of_shards, name)
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
