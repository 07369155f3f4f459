"""The table of attacks (2 wrong gradients of 20 in every step) through the driver.

The net is 64-64-10 (tanh) on scikit-learn's digits, plain gradient descent. Non-finite
answers never come as far as a rule: acceptance refuses them, whatever the rule.
"""

import numpy as np
import pytest

from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.methods import robust
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.robust import (
    CentredClipping,
    Clip,
    CoordinateMedian,
    Krum,
    TrimmedMean,
)
from stoilo.learn.methods.synchronous import (
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from tests.support.learning import Net, load_digits, split_evenly

PARTS, WRONG, BLOCK = 20, 2, 14
REACHED, LOST = 0.95, 0.5
NET = Net((64, 64, 10))


def loss(parameters, x, y):
    total, slope, _ = NET.differentiate(parameters, x, y)
    return total, slope


def change(value, change_array):
    tensors = {name: change_array(a) for name, a in value["tensors"].items()}
    return {**value, "tensors": tensors}


def add_noise(value):
    rng = np.random.default_rng(len(str(value["loss_sum"])))
    return change(value, lambda a: 1e6 * rng.standard_normal(a.shape))


ATTACKS = {
    "none": None,
    "flipped": lambda value: change(value, lambda a: -10.0 * a),
    "noise": add_noise,
    "nan": lambda value: change(value, lambda a: np.full_like(a, np.nan)),
}


async def train(attack, rule=None, clip=None, epochs=24, poll_s=0.0):
    """Return the share of the test images that is classified rightly, and the run.

    Without a pause between tasks no mark of a host keeps it away: the rules alone help.
    """
    data = load_digits()
    rows = split_evenly(len(data.images), PARTS)
    parts = [Part(data.images[r], data.labels[r]) for r in rows]
    model = ArrayModel(NET.start(1), loss)
    method = Synchronous(
        model.first(),
        [len(part) for part in parts],
        Sgd(1.0),
        SynchronousSettings(epochs, block=BLOCK),
        combine=robust.RobustSum(rule) if rule else sum_gradients,
    )
    hosts = [SimulatedHost(poll_s=poll_s)] * (PARTS - WRONG)
    cheats = [SimulatedHost(cheat=ATTACKS[attack], poll_s=poll_s)] * WRONG
    backend = SimulatedBackend([*hosts, *cheats])
    settings = RunSettings(in_flight=PARTS, clip=clip)
    with np.errstate(all="ignore"):
        async with Run(method, model, parts, backend, settings) as run:
            end = await run.finish()
        return NET.score(end.parameters, data.test_images, data.test_labels), run


SLOW = pytest.mark.slow
EVERY = ["flipped", pytest.param("noise", marks=SLOW), pytest.param("nan", marks=SLOW)]
RULES = {
    "median": CoordinateMedian(),
    "trimmed": TrimmedMean(0.2),
    "krum": Krum(),
    "centred": CentredClipping(),
}


@pytest.mark.parametrize("attack", [*EVERY, pytest.param("none", marks=SLOW)])
async def test_default_clipping_reaches_the_accuracy_under_every_attack(attack):
    reached, run = await train(attack, clip=Clip())
    assert reached >= REACHED
    answers = run.method.steps * PARTS
    if attack in {"flipped", "noise"}:
        assert run.tally.shortened > 0.08 * answers
    else:
        assert run.tally.shortened < 0.01 * answers


@pytest.mark.parametrize("attack", ["flipped", pytest.param("noise", marks=SLOW)])
async def test_control_two_wrong_gradients_ruin_the_plain_mean(attack):
    reached, run = await train(attack)
    assert reached < LOST
    assert run.tally.shortened == run.tally.refused == 0


@SLOW
@pytest.mark.parametrize("attack", ["none", "nan"])
async def test_plain_mean_suffices_without_an_attack_and_against_nan(attack):
    reached, run = await train(attack)
    assert reached >= REACHED
    assert (max(run.backend.faults) > 0) == (attack == "nan")


@SLOW
@pytest.mark.parametrize("attack", ["flipped", "noise"])
@pytest.mark.parametrize("rule", RULES)
async def test_other_rules_reach_the_accuracy_under_every_attack(rule, attack):
    reached, _ = await train(attack, RULES[rule])
    assert reached >= REACHED - 0.02 * (rule == "krum")


async def test_cheats_alone_are_marked_and_kept_away_when_they_are_far_off():
    _, run = await train("noise", clip=Clip(), epochs=4, poll_s=1.0)
    assert min(run.backend.faults[-WRONG:]) > 0
    assert max(run.backend.faults[:-WRONG]) == 0
    assert run.tally.shortened < 0.5 * WRONG * run.method.steps
