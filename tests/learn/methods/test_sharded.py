"""Layers in shards give what the whole layer gives: torch's cross-entropy, a wide MLP."""

import numpy as np
import pytest
import torch

from stoilo.core.errors import UsageError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import make_arguments
from stoilo.learn.core.orders import Reply
from stoilo.learn.methods.evaluating import Vocabulary
from stoilo.learn.trainers.options import TrainerOptions
from stoilo.learn.trainers.staged import ShardModel, apply_wide, vocabulary_loss

WORDS, WIDTH, TOKENS = 50, 6, 40
CUTS = {1: [50], 2: [17, 33], 3: [25, 1, 24], 8: [9, 3, 1, 7, 11, 6, 5, 8]}


def make(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(TOKENS, WIDTH)), rng.normal(size=(WORDS, WIDTH)) * scale
    y = rng.integers(0, WORDS, TOKENS)
    y[::7] = -100
    return x, y, w, rng.normal(size=WORDS)


def cut(w, b, sizes):
    ends = np.cumsum(sizes)[:-1]
    pairs = zip(np.split(w, ends), np.split(b, ends), strict=True)
    return [{"weight": some, "bias": theirs} for some, theirs in pairs]


def by_torch(x, y, w, b, smoothing):
    given = torch.tensor(x, requires_grad=True)
    z = given @ torch.tensor(w).T + torch.tensor(b)
    loss = torch.nn.functional.cross_entropy(
        z, torch.tensor(y), label_smoothing=smoothing
    )
    loss.backward()
    return loss.item(), given.grad.numpy()


def worst(found, wanted):
    return max(abs(found[0] - wanted[0]), np.abs(found[1] - wanted[1]).max())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
async def test_cross_entropy_over_shards_is_that_of_torch(seed, smoothing):
    x, y, w, b = make(seed)
    wanted = by_torch(x, y, w, b, smoothing)
    for sizes in CUTS.values():
        found = await vocabulary_loss(
            LocalBackend(2), x, y, cut(w, b, sizes), smoothing=smoothing,
            options=TrainerOptions(tasks=3),
        )  # fmt: skip
        assert worst(found, wanted) < 1e-12


async def test_large_logits_stay_finite():
    x, y, w, b = make(0, scale=1e3)
    found = await vocabulary_loss(None, x, y, cut(w, b, CUTS[3]))
    assert worst(found, by_torch(x, y, w, b, 0.0)) < 1e-9
    with np.errstate(over="ignore"):  # without the largest taken away they are not
        assert not np.isfinite(np.exp(x @ w.T + b).sum())


async def test_smoothing_by_a_shards_own_words_would_be_another_loss():
    x, y, w, b = make(1)
    wanted, _ = by_torch(x, y, w, b, 0.1)
    total, _ = await vocabulary_loss(None, x, y, cut(w, b, [50]), smoothing=0.1)
    assert total == pytest.approx(wanted, abs=1e-12)
    z = x @ w.T + b
    counted = y >= 0
    gap = 0.1 * (z.sum(1) / WORDS - z[:, :25].sum(1) / 25)[counted].mean()
    assert abs(gap) > 1e-3


async def test_answers_bits_do_not_depend_on_the_hosts():
    x, y, w, b = make(3)
    ends = []
    for seed in range(3):
        hosts = [
            SimulatedHost(9.0 + seed, loss=0.2),
            SimulatedHost(40.0),
            SimulatedHost(),
        ]
        backend = SimulatedBackend(hosts, seed=seed)
        ends.append(await vocabulary_loss(backend, x, y, cut(w, b, CUTS[8])))
    assert all(worst(end, ends[0]) == 0.0 for end in ends)


def shrink(value):
    if "sum" not in value["tensors"]:
        return value
    return {**value, "tensors": {**value["tensors"], "sum": np.zeros(TOKENS)}}


async def test_sum_without_its_largest_summand_is_asked_for_again():
    x, y, w, b = make(4)
    hosts = [SimulatedHost(), SimulatedHost(cheat=shrink)]
    backend, options = SimulatedBackend(hosts), TrainerOptions(tasks=1)
    found = await vocabulary_loss(backend, x, y, cut(w, b, CUTS[3]), options=options)
    assert backend.served[1] > 0
    assert sum(backend.served) > 2 * 3
    assert worst(found, by_torch(x, y, w, b, 0.0)) < 1e-12


def test_work_that_was_saved_in_any_round_goes_on():
    x, y, w, b = make(5)
    wanted = by_torch(x, y, w, b, 0.0)
    model, parts = ShardModel({"none": np.zeros(1)}, None), np.split(x, 2)
    method = Vocabulary(cut(w, b, CUTS[3]), np.split(y, 2))
    while not method.finished:
        for order in method.next_orders(2):
            part = Part(parts[order.part], np.split(y, 2)[order.part])
            given = make_arguments(model, order.snapshot, part, order.settings)
            answer = model.kernel(order.kernel)({**given, "own": order.own})
            method.take(order, Reply(0, order.samples, 0.0, answer["tensors"]))
        again = Vocabulary(cut(w, b, CUTS[3]), np.split(y, 2))
        again.load(method.save())
        method = again
    assert worst((method.loss(), method.slope()), wanted) < 1e-12


def test_shard_without_words_is_refused():
    shards = cut(np.zeros((2, 3)), np.zeros(2), [2, 0])
    with pytest.raises(UsageError, match="say nothing"):
        Vocabulary(shards, [np.zeros(4, np.int64)])


def gelu(z):
    return 0.5 * z * (1.0 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))


def mlp(weights, x):
    z = x @ weights["a"] + weights["c"]
    hidden = 0.5 * z * (1.0 + np.tanh(0.7978845608 * (z + 0.044715 * z**3)))
    return hidden @ weights["b"]


def off(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("sizes", [[8, 8], [3, 12, 1], [2] * 8])
async def test_wide_layer_is_the_sum_of_its_shards(sizes):
    rng = np.random.default_rng(len(sizes))
    x, a, c, b, d = (rng.normal(size=s) for s in ((30, 6), (6, 16), 16, (16, 5), 5))
    ends = np.cumsum(sizes)[:-1]
    cuts = zip(np.split(a, ends, 1), np.split(c, ends), np.split(b, ends), strict=True)
    shards = [{"a": one, "c": its, "b": rows} for one, its, rows in cuts]
    wanted = gelu(x @ a + c) @ b + d
    found = await apply_wide(LocalBackend(2), x, shards, mlp, (5,))
    assert off(found + d, wanted) < 1e-14
    assert off(found + len(sizes) * d, wanted) > 0.05  # the bias once for each shard
    halves = [gelu(x[:, i] @ a[i] + c / 2) for i in (slice(3), slice(3, 6))]
    assert (
        off(sum(halves) @ b + d, wanted) > 0.1
    )  # rows first: GeLU of a part of the sum
