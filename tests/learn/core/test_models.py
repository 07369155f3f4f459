"""Which losses are known to be at least 0, and that trainers refuse answers below it."""

import math

import pytest
import torch
from torch import nn

from stoilo.learn import TorchModel, TrainerOptions, make_trainer
from stoilo.learn.core.models import find_least_loss
from stoilo.learn.trainers.dpbgd import DPBGDOptions, DPBGDTrainer
from tests.support.points import make_model

F = nn.functional
KNOWN = [
    nn.CrossEntropyLoss(), nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(),
    nn.BCELoss(), nn.BCEWithLogitsLoss(), nn.MSELoss(reduction="sum"),
    F.cross_entropy, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss,
    F.binary_cross_entropy, F.binary_cross_entropy_with_logits,
]  # fmt: skip


class Shifted(nn.MSELoss):
    def forward(self, found, wanted):
        return super().forward(found, wanted) - 1.0


def mse_loss(found, wanted):
    return F.mse_loss(found, wanted) - 1.0


UNKNOWN = [nn.NLLLoss(), F.nll_loss, Shifted(), mse_loss, nn.GaussianNLLLoss()]


@pytest.mark.parametrize("loss", KNOWN)
def test_known_loss_is_at_least_zero(loss):
    assert find_least_loss(TorchModel(nn.Linear(1, 1), loss)) == 0.0


@pytest.mark.parametrize("loss", UNKNOWN)
def test_other_loss_may_be_anything(loss):
    assert find_least_loss(TorchModel(nn.Linear(1, 1), loss)) == -math.inf


def test_loss_of_arrays_may_be_anything():
    assert find_least_loss(make_model()) == -math.inf


@pytest.mark.parametrize(
    ("loss", "given", "least"),
    [(nn.MSELoss(), None, 0.0), (nn.MSELoss(), -1.0, -1.0), (mse_loss, 0.5, 0.5)],
)
def test_least_loss_reaches_the_run_of_every_trainer(loss, given, least):
    data = torch.zeros(8, 1), torch.zeros(8, 1)
    options = TrainerOptions(least_loss=given)
    one = make_trainer("vcasgd", nn.Linear(1, 1), data, loss=loss, options=options)
    other = DPBGDTrainer(
        None, nn.Linear(1, 1), loss, torch.optim.SGD, {"lr": 0.1}, data,
        options=DPBGDOptions(least_loss=given),
    )  # fmt: skip
    found = [trainer.run.settings.least_loss for trainer in (one, other)]
    assert found == [least, least]
