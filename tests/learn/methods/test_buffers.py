import numpy as np
import pytest

from stoilo.learn.core.orders import Reply
from stoilo.learn.methods.buffers import BufferBounds, Layer, Momenta, pool_buffers
from stoilo.learn.methods.robust import Clip

torch = pytest.importorskip("torch")


def pass_once(layer, values):
    """Buffers of a BatchNorm layer after one pass over `values`."""
    layer.load_state_dict(torch.nn.BatchNorm1d(values.shape[1]).state_dict())
    layer.train()
    layer(torch.tensor(values, dtype=torch.float32))
    return {name: b.numpy().copy() for name, b in layer.named_buffers()}


def make_shards(shift):
    rng = np.random.default_rng(2)
    return [
        rng.normal(k * shift, 1.0 + k, size=(n, 3)) for k, n in enumerate((900, 300))
    ]


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_pooled_statistics_are_those_of_one_pass_over_all(shift):
    shards, layer = make_shards(shift), torch.nn.BatchNorm1d(3)
    before = {name: b.numpy().copy() for name, b in layer.named_buffers()}
    replies = [Reply(0, len(s), 0.0, {}, pass_once(layer, s)) for s in shards]
    pooled = pool_buffers(before, replies, momentum=0.1)
    whole = pass_once(layer, np.concatenate(shards))
    assert np.allclose(
        pooled["running_mean"], whole["running_mean"], rtol=1e-4, atol=1e-6
    )
    assert np.allclose(pooled["running_var"], whole["running_var"], rtol=1e-3)
    assert pooled["num_batches_tracked"] == 1


@pytest.mark.parametrize("momentum", [0.1, 0.5, None])
def test_variances_are_exact_where_the_values_of_a_sample_are_known(momentum):
    rng = np.random.default_rng(2)
    shards = [rng.normal(k, 1.0 + k, size=(n, 2, 3)) for k, n in enumerate((5, 2, 9))]
    layer = torch.nn.BatchNorm1d(2, momentum=momentum).double()
    before = {f"b.{n}": b.numpy().copy() for n, b in layer.named_buffers()}

    def after(values):
        one = torch.nn.BatchNorm1d(2, momentum=momentum).double()
        one(torch.tensor(values))
        return {f"b.{n}": b.numpy() for n, b in one.named_buffers()}

    replies = [Reply(0, len(s), 0.0, {}, after(s)) for s in shards]
    wanted = after(np.concatenate(shards))["b.running_var"]
    for values, fits in ((3, True), (0, False)):
        known = Momenta((Layer("b", momentum, values),))
        found = pool_buffers(before, replies, known)["b.running_var"]
        assert np.allclose(found, wanted, rtol=1e-12) is fits


def test_average_of_variances_misses_the_spread_of_the_means():
    shards, layer = make_shards(3.0), torch.nn.BatchNorm1d(3)
    means = [pass_once(layer, s)["running_var"] for s in shards]
    whole = pass_once(layer, np.concatenate(shards))["running_var"]
    assert not np.allclose((900 * means[0] + 300 * means[1]) / 1200, whole, rtol=0.05)


def test_counters_are_the_median_and_forms_are_kept():
    before = {"n": np.asarray(0), "x": np.zeros(2, np.float32)}
    replies = [
        Reply(0, n, 0.0, {}, {"n": np.asarray(n), "x": np.full(2, n, np.float32)})
        for n in (1, 3)
    ]
    pooled = pool_buffers(before, replies)
    assert pooled["n"] == 3
    assert pooled["x"].tolist() == [2.5, 2.5]
    assert pooled["x"].dtype == np.float32


def reply_of(variance):
    buffers = {"n.running_var": np.full(4, variance)}
    return Reply(0, 10, 1.0, {}, buffers)


def move(bounds, variance):
    """Return what an answer makes of a variance of 1."""
    found = bounds.bound({"n.running_var": np.ones(4)}, reply_of(variance), Clip())
    return found.buffers["n.running_var"][0]


def test_few_answers_move_no_buffer_that_rests_and_most_do():
    bounds = BufferBounds()
    bounds.begin({"n.running_var": 0.0}, 3)
    assert [move(bounds, 1e30) for _ in range(3)] == [1.0, 1.0, 1.0]
    fresh = BufferBounds()
    for _ in range(50):
        assert move(fresh, 1.0) == 1.0
    assert [move(fresh, 2.0) for _ in range(60)][-1] == 2.0
