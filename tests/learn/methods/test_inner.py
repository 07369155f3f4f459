"""Inner optimisers whose state goes on from round to round."""

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stoilo.core.errors import UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel, TorchModel
from stoilo.learn.core.orders import Reply
from stoilo.learn.driver.run import Run
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.federated import (
    MOST_RATIO,
    FederatedSettings,
    diloco,
    fedavg,
    make_sound,
)
from stoilo.learn.methods.optimizers import Adam, Sgd
from tests.support.learning import load_digits, run_serially

ADAMW = LocalWork(1e-2, steps=3, optimizer="adamw", keep=True)


def slope(parameters, x, y):
    """Sum of losses and gradient of a softmax regression."""
    z = x @ parameters["w"]
    odds = np.exp(z - z.max(axis=1, keepdims=True))
    odds = odds / odds.sum(axis=1, keepdims=True)
    loss = -float(np.log(odds[np.arange(len(y)), y]).sum())
    odds[np.arange(len(y)), y] -= 1.0
    return loss, {"w": x.T @ odds}


def gather(sizes=(40,)):
    digits = load_digits()
    starts = np.cumsum((0, *sizes))
    return [
        Part(digits.images[a : a + n], digits.labels[a : a + n])
        for a, n in zip(starts, sizes, strict=False)
    ]


def make(model, local, parts, kind=fedavg, rounds=4):
    sizes = [len(part) for part in parts]
    return kind(model.first(), sizes, FederatedSettings(rounds, local))


def train(local, parts, kind=fedavg, model=None):
    model = model or ArrayModel({"w": np.zeros((64, 10))}, slope)
    method = make(model, local, parts, kind)

    def answer(order):
        data, snapshot = parts[order.part], order.snapshot
        raw = model.kernel(order.kernel)(
            {
                **model.constants(),
                "parameters": snapshot.parameters,
                "buffers": {},
                "data": {"x": data.x, "y": data.y},
                "rows": None,
                "settings": order.settings,
                "version": snapshot.version,
            }
        )
        return Reply(snapshot.version, raw["samples"], raw["loss_sum"], raw["tensors"])

    run_serially(method, answer)
    return method.snapshot.parameters


@pytest.mark.parametrize(("local", "optimizer"), [
    (ADAMW, lambda: Adam(1e-2, decay=0.01, decoupled=True)),
    (LocalWork(0.1, steps=3, momentum=0.9, keep=True), lambda: Sgd(0.1, momentum=0.9)),
])  # fmt: skip
def test_rounds_of_one_part_are_one_optimiser_that_goes_on(local, optimizer):
    """Control: without keeping, each round begins anew and ends elsewhere."""
    part, w = gather()[0], {"w": np.zeros((64, 10))}
    serial = optimizer()
    for _ in range(12):
        _, sums = slope(w, part.x, part.y)
        w = serial.step(w, {"w": sums["w"] / 40})
    kept = train(local, [part])["w"]
    anew = train(LocalWork(**{**vars_of(local), "keep": False}), [part])["w"]
    assert np.allclose(kept, w["w"], rtol=1e-9, atol=1e-12)
    assert not np.allclose(anew, w["w"], rtol=0.05)


def vars_of(local):
    return {name: getattr(local, name) for name in type(local).__dataclass_fields__}


@pytest.mark.parametrize("local", [
    LocalWork(1e-2, batch=8, steps=3, optimizer="adamw", keep=True),
    LocalWork(0.1, batch=8, steps=3, momentum=0.9, keep=True),
])  # fmt: skip
def test_torch_keeps_what_numpy_keeps(local):
    module = nn.Linear(64, 10, bias=False).double()
    with torch.no_grad():
        module.weight.zero_()
    parts = gather((40, 25))
    model = TorchModel(module, nn.functional.cross_entropy)
    theirs = train(local, parts, diloco, model=model)["weight"]
    ours = train(local, parts, diloco)["w"]
    assert np.allclose(theirs.T, ours, rtol=1e-8, atol=1e-10)


def test_frozen_parameter_stays_out_of_the_kept_state():
    module = nn.Linear(64, 10).double()
    module.bias.requires_grad_(requires_grad=False)
    model = TorchModel(module, nn.functional.cross_entropy)
    assert set(train(ADAMW, gather(), model=model)) == {"weight"}


@given(
    st.lists(
        st.floats(-1e6, 1e6).filter(lambda g: g == 0 or abs(g) > 1e-9),
        min_size=1,
        max_size=300,
    )
)
def test_honest_moments_stay_as_they_are(gradients):
    first = second = 0.0
    for g in gradients:
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
    rows = {"w": np.array([[first], [second]])}
    assert np.allclose(make_sound(rows)["w"], rows["w"], rtol=1e-9, atol=1e-300)


@given(st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=2))
def test_lied_moments_move_nothing_further_than_honest_ones(moments):
    first, second = make_sound({"w": np.array(moments)})["w"]
    assert second >= 0.0
    assert abs(first) <= MOST_RATIO * np.sqrt(second)


def test_versions_name_what_each_part_starts_from():
    model = ArrayModel({"w": np.zeros((64, 10))}, slope)
    method = diloco(model.first(), (3, 4), FederatedSettings(2, ADAMW))

    def answer(order):
        same = order.snapshot.parameters
        return Reply(order.snapshot.version, order.samples, 0.0, dict(same))

    orders = method.next_orders(2)
    updates = [method.take(order, answer(order)) for order in orders]
    later = method.next_orders(2)
    versions = [order.snapshot.version for order in (*orders, *later)]
    assert len(set(versions)) == 4
    assert method.snapshot.version == 3
    assert [update.staleness for update in updates] == [0, 0]
    assert [order.settings["made"] for order in later] == [3, 3]


def test_optimiser_without_state_cannot_keep_one():
    with pytest.raises(UsageError, match="STO-T040"):
        LocalWork(0.1, keep=True)


def test_driver_carries_the_state_like_any_order():
    parts, model = gather((20, 30)), ArrayModel({"w": np.zeros((64, 10))}, slope)

    async def drive():
        method = make(model, ADAMW, parts, diloco)
        async with Run(method, model, parts, LocalBackend()) as run:
            return (await run.finish()).parameters, run.tally

    parameters, tally = asyncio.run(drive())
    assert (tally.refused, tally.failed) == (0, 0)
    assert np.allclose(parameters["w"], train(ADAMW, parts, diloco)["w"], rtol=1e-9)
