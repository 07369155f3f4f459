"""Models in stages, trained by tasks of one stage each: see `stoilo.learn.methods.staged`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from stoilo.core.errors import UsageError
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import Kernel, TorchModel
from stoilo.learn.core.tensors import Form
from stoilo.learn.methods.staged import Staged, StagedSettings, count_parts
from stoilo.learn.trainers.options import TrainerOptions, as_parts
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
        if any(True for _ in self.module.buffers()):
            raise UsageError(
                "STO-T001",
                "a stage has buffers, of which several groups under way make several",
                hint="LayerNorm or GroupNorm in the place of BatchNorm",
            )
        once = len([*self.module.parameters()])
        if sum(len([*stage.parameters()]) for stage in self.stages) != once:
            raise UsageError("STO-T001", "two stages share a parameter")

    @property
    def stages(self) -> list[nn.Module]:
        """The stages, first to last."""
        found: Any = self.module  # iterable: a Sequential
        return list(found)

    def kernel(self, name: str) -> Kernel:
        """Return a stage's kernel, or one of the whole model."""
        from stoilo.learn.kernels import stages  # noqa: PLC0415 - needs torch

        if name in stages.__all__:
            found: Kernel = getattr(stages, name)
            return found
        return super().kernel(name)

    def outputs(self, part: Part) -> list[Form]:
        """Return what each stage but the last makes of a sample, by running two here.

        Raises:
            UsageError: ``STO-T001`` where that is not one floating array, samples first.
        """
        import torch  # noqa: PLC0415 - only with a module

        kernels: Any = self._kernels()
        few, found = part.take(slice(0, 2)), []
        x = kernels.take(few.x, None)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for place, stage in enumerate(self.stages[:-1]):
                x = kernels.apply(stage, x)
                is_one = isinstance(x, torch.Tensor) and x.is_floating_point()
                if not is_one or not x.ndim or len(x) != len(few):
                    raise UsageError(
                        "STO-T001",
                        f"stage {place} does not give one floating array, samples first",
                        hint="cut the model where one activation passes",
                    )
                found.append(Form(str(x.numpy().dtype), tuple(x.shape[1:])))
        return found

    @staticmethod
    def _kernels() -> object:
        from stoilo.learn.kernels import torch_models  # noqa: PLC0415 - needs torch

        return torch_models


class StagedTrainer(Trainer):
    """A pipeline of tasks: the model's stages on volunteers, several groups under way.

    An activation cannot be bounded as a gradient is, and a wrong one spoils all that comes
    after it: at a server let copies agree (``redundancy=CreateOptions(min_quorum=2)``). The
    bound on answers, checks at home and codecs know whole models only, and are off.

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

        options = _check(options or TrainerOptions())
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
        dealt = deal_parts(parts, len(stages))
        super().__init__(conn, model, dealt, make, options=options, name="staged")


def deal_parts(parts: Sequence[Part], stages: int) -> list[Part]:
    """Return the parts that orders name, as `count_parts` counts them."""
    if len(count_parts([1], stages)) == 1:
        return list(parts)
    empty = [np.zeros(len(part), np.int8) for part in parts]
    inputs = [Part(part.x, none) for part, none in zip(parts, empty, strict=True)]
    targets = [Part(none, part.y) for part, none in zip(parts, empty, strict=True)]
    return [*inputs, *targets, Part(np.zeros(1, np.int8), np.zeros(1, np.int8))]


def _check(options: TrainerOptions) -> TrainerOptions:
    """Refuse what has no meaning for a single stage's answers."""
    usual = TrainerOptions()
    for name in ("privacy", "transport", "downlink"):
        if getattr(options, name) != getattr(usual, name):
            raise UsageError("STO-T040", f"{name} is for whole models, not for stages")
    return options
