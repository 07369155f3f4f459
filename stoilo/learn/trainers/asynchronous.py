"""Trainers that wait for nobody: VC-ASGD and Downpour; each answer counts as it comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.plans import APPLY, LocalWork, Staleness
from stoilo.learn.methods.vcasgd import Alpha, Vcasgd, VcasgdSettings
from stoilo.learn.optimizers import Adagrad, Optimizer
from stoilo.learn.trainers.places import Place
from stoilo.learn.trainers.trainer import Loss, Trainer, TrainerOptions

__all__ = ["DownpourTrainer", "VCASGDTrainer"]


class VCASGDTrainer(Trainer):
    """Volunteers train their part locally; their weights are mixed into the model's.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        loss: of a torch module.
        alpha: share that the model keeps at each answer, or "e/(e+1)", which grows.
        local_steps: that a volunteer makes in a task; 0 for one pass over its part.
        local: how it makes them: rate, batch (0: its whole part), optimiser.
        epochs: in which each part counts once.
        pull: tasks start from the "latest" model, or from the one at the "epoch"'s start.
        mode: "mix" as published, or "delta" without the pull back to a stale start.
        staleness: what older answers are worth.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        *,
        loss: Loss | None = None,
        alpha: Alpha = 0.95,
        local_steps: int = 1,
        local: LocalWork | None = None,
        epochs: int = 10,
        pull: Literal["latest", "epoch"] = "latest",
        mode: Literal["mix", "delta"] = "mix",
        staleness: Staleness = APPLY,
        options: TrainerOptions | None = None,
    ) -> None:
        work = replace(local or LocalWork(rate=0.1), steps=local_steps)
        seed = options.seed if options else 0
        settings = VcasgdSettings(epochs, work, alpha, pull, mode, staleness, seed)
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: Vcasgd(start, sizes, settings),
            loss=loss,
            options=options,
            name="vcasgd",
        )


class DownpourTrainer(Trainer):
    """Each part's gradients are pushed as they come; the optimiser's state stays here.

    Args:
        conn: see `Trainer`.
        model: see `Trainer`.
        data: see `Trainer`.
        settings: passes, batch, local steps of a task, staleness, warm start.
        optimizer: at the server; Adagrad, which asynchrony harms least, when None.
        loss: of a torch module.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        model: object,
        data: object,
        settings: DownpourSettings,
        *,
        optimizer: Optimizer | None = None,
        loss: Loss | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        server = optimizer or Adagrad(0.05)
        super().__init__(
            conn,
            model,
            data,
            lambda start, sizes: Downpour(start, sizes, server, settings),
            loss=loss,
            options=options,
            name="downpour",
        )
