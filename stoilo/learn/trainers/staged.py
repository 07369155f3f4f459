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
from stoilo.learn.methods.staged import Staged, StagedSettings
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
