"""`LogisticTrainer`: logistic regression on the parameter server, in its four modes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stoilo.learn.kernels.logistic import make_loss
from stoilo.learn.models import ArrayModel
from stoilo.learn.ps.logistic import LogisticRegression, LogisticSettings
from stoilo.learn.ps.server import ParameterServer
from stoilo.learn.trainers.given import Loss, as_parts
from stoilo.learn.trainers.places import Place
from stoilo.learn.trainers.trainer import Trainer, TrainerOptions

__all__ = ["LogisticTrainer"]


class LogisticTrainer(Trainer):
    """Workers are parts of the data; the vector clock says who may go on.

    Args:
        conn: see `Trainer`.
        data: see `Trainer`; targets are 0 and 1.
        settings: mode, rounds, how far a worker may be ahead (0: BSP, None: ASP), rate.
        decay: of the regression's own model, λ of ``λ|θ|²`` a sample.
        model: another model with a sum of losses; the regression's own when None.
        loss: of a torch module.
        server: keeps the parameters; one in memory when None.
        options: see `TrainerOptions`.
    """

    def __init__(
        self,
        conn: Place,
        data: object,
        settings: LogisticSettings,
        *,
        decay: float = 0.01,
        model: object = None,
        loss: Loss | None = None,
        server: ParameterServer | None = None,
        options: TrainerOptions | None = None,
    ) -> None:
        own_options = options or TrainerOptions()
        parts = as_parts(data, own_options)
        if model is None:
            width = int(np.prod(np.shape(parts[0].x)[1:]))
            make: Any = make_loss  # untyped: it travels as source
            model = ArrayModel({"theta": np.zeros(width)}, make(decay))
        if settings.lease_s is not None and own_options.in_flight == 0:
            copies = 2 * len(parts)  # one that is silent must not hold another's place
            own_options = replace(own_options, in_flight=copies)
        super().__init__(
            conn,
            model,
            parts,
            lambda start, sizes: LogisticRegression(start, sizes, settings, server),
            loss=loss,
            options=own_options,
            name="logistic",
        )
