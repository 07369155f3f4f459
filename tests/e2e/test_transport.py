"""Gradients encoded in the jail by two hosts, and decoded at home."""

import asyncio

import numpy as np
import pytest

import stoilo
from stoilo.client.session import Journal
from stoilo.learn import ArrayModel, TrainerOptions, fit, split
from stoilo.testing.deployment import Deployment


def softmax_loss(parameters, x, y):
    z = x @ parameters["w"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    return -float(logs[np.arange(len(y)), y].sum()), {"w": x.T @ slope}


def make_samples():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 96)
    return rng.normal(size=(96, 4)) + np.eye(3, 4)[y] * 3.0, y


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("transport")
    with Deployment(folder / "data", volunteers=2) as running:
        yield running


async def train(deployment, transport):
    model = ArrayModel({"w": np.zeros((4, 3))}, softmax_loss)
    journal = Journal(deployment.data.parent / "journal")
    async with stoilo.connect(deployment.line.connection, journal=journal) as conn:
        return await fit(
            "sync", model, split(*make_samples(), 3), conn, epochs=2, batch=16,
            options=TrainerOptions(transport=transport),
        )  # fmt: skip


@pytest.mark.slow
def test_answers_encoded_in_the_jail_train_as_those_that_are_not(deployment):
    raw = asyncio.run(train(deployment, "raw"))
    compressed = asyncio.run(train(deployment, "compressed"))
    ternary = asyncio.run(train(deployment, "ternary"))
    weights = [trained.snapshot.parameters["w"] for trained in (raw, compressed)]
    np.testing.assert_allclose(*weights, rtol=1e-12)
    assert ternary.epochs[-1].average_loss < np.log(3.0)
    assert ternary.tally.received_bytes < raw.tally.received_bytes / 2
    assert [one.tally.refused for one in (raw, compressed, ternary)] == [0, 0, 0]
