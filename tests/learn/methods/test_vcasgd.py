import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.base import LocalWork, Staleness
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from tests.support.learning import (
    Net,
    Volunteers,
    load_digits,
    run_serially,
    split_evenly,
)

HERE = Snapshot(0, {"w": np.array([8.0])}, {"mean": np.array([1.0]), "n": np.array(3)})


def make(parts=(1, 1, 1), start=HERE, **more):
    wanted = {"epochs": 1, "local": LocalWork(0.5), "alpha": 0.5, **more}
    return Vcasgd(start, parts, VcasgdSettings(**wanted))


def reply(order, w):
    buffers = {"mean": np.array([2.0]), "n": np.array(9)}
    return Reply(order.snapshot.version, 1, 0.5, {"w": np.array([w])}, buffers)


def take_all(method, order_of_arrival, values):
    orders = method.next_orders(3)
    return [
        method.take(orders[i], reply(orders[i], values[i])) for i in order_of_arrival
    ]


@pytest.mark.parametrize(("arrival", "wanted"), [
    ((0, 1, 2), 8 / 8 + 16 / 8 + 32 / 4 + 64 / 2),
    ((2, 1, 0), 8 / 8 + 64 / 8 + 32 / 4 + 16 / 2),
])  # fmt: skip
def test_answers_are_mixed_in_the_order_of_arrival(arrival, wanted):
    method = make()
    take_all(method, arrival, (16.0, 32.0, 64.0))
    assert method.snapshot.parameters["w"].tolist() == [wanted]


def test_alpha_is_the_servers_share():
    method = make(parts=(1,), alpha=0.75)
    take_all(method, (0,), (0.0,))
    assert method.snapshot.parameters["w"].tolist() == [6.0]  # 2.0 if exchanged


def test_means_are_mixed_and_counters_are_not():
    method = make(parts=(1,), alpha=0.75)
    take_all(method, (0,), (0.0,))
    assert method.snapshot.buffers["mean"].tolist() == [1.25]
    assert method.snapshot.buffers["n"] == 3


def test_staleness_is_recorded_and_versions_grow():
    updates = take_all(make(), (0, 1, 2), (1.0, 1.0, 1.0))
    assert [u.staleness for u in updates] == [0, 1, 2]
    assert [u.version for u in updates] == [1, 2, 3]
    assert [u.epoch_ended for u in updates] == [False, False, True]


def test_second_answer_to_a_part_changes_nothing():
    method = make()
    order, *_ = method.next_orders(3)
    method.take(order, reply(order, 16.0))
    before = method.snapshot
    assert not method.take(order, reply(order, 16.0)).applied
    assert method.snapshot is before


def test_orders_start_from_the_parameters_at_hand_out_or_of_the_epoch():
    for pull, version in (("latest", 1), ("epoch", 0)):
        method = make(pull=pull)
        first = method.next_orders(1)[0]
        method.take(first, reply(first, 1.0))
        assert method.next_orders(1)[0].snapshot.version == version


def test_stale_answer_pulls_back_to_its_base_in_mix_and_not_in_delta():
    found = {}
    for mode in ("mix", "delta"):
        method = make(parts=(1, 1), mode=mode)
        moving, idle = method.next_orders(2)
        method.take(moving, reply(moving, 16.0))
        method.take(idle, reply(idle, 8.0))  # has not moved at all
        found[mode] = method.snapshot.parameters["w"].tolist()
    assert found == {"mix": [10.0], "delta": [12.0]}


def test_lost_part_goes_out_again_from_newer_parameters_and_counts_once():
    method = make()
    lost, other, _ = method.next_orders(3)
    method.take(other, reply(other, 1.0))
    method.lose(lost)
    again = method.next_orders(3)
    assert [(o.key, o.snapshot.version) for o in again] == [(lost.key, 1)]
    assert method.take(again[0], reply(again[0], 1.0)).applied
    assert not method.take(lost, reply(lost, 1.0)).applied


def test_growing_share_is_a_half_in_the_first_epoch():
    settings = VcasgdSettings(3, LocalWork(0.5), "e/(e+1)")
    assert [settings.keep(e) for e in range(3)] == [1 / 2, 2 / 3, 3 / 4]


def test_damped_answer_moves_less():
    method = make(staleness=Staleness("damp"))
    take_all(method, (0, 1), (8.0, 16.0))
    assert method.snapshot.parameters["w"].tolist() == [10.0]  # a quarter of the way


def test_discarded_part_is_ordered_again_under_a_new_key():
    method = make(parts=(1, 1), staleness=Staleness("discard", 0))
    first, stale = method.next_orders(2)
    method.take(first, reply(first, 1.0))
    assert not method.take(stale, reply(stale, 1.0)).applied
    again = method.next_orders(2)
    assert [o.part for o in again] == [stale.part]
    assert again[0].key != stale.key
    assert method.take(again[0], reply(again[0], 1.0)).epoch_ended


def test_one_client_with_alpha_0_trains_serially():
    digits = load_digits()
    net, parts = Net((64, 10)), split_evenly(60, 3)
    crew = Volunteers(net, digits.images, digits.labels, parts)
    method = make(
        crew.sizes, crew.start(), epochs=2, alpha=0.0, local=LocalWork(0.5, batch=0)
    )
    turns = [int(u.key.partition("p")[2]) for u in run_serially(method, crew.answer)]
    w = crew.start().parameters
    for part in turns:
        rows = parts[part]
        _, slope, _ = net.differentiate(w, digits.images[rows], digits.labels[rows])
        w = {n: a - 0.5 * slope[n] / len(rows) for n, a in w.items()}
    assert np.allclose(flatten(method.snapshot.parameters), flatten(w), rtol=1e-12)


@pytest.mark.parametrize("bad", [
    {"alpha": 1.0}, {"alpha": -0.1}, {"alpha": "e"}, {"epochs": 0}, {"alpha": np.nan},
])  # fmt: skip
def test_settings_that_cannot_train_are_refused(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        make(**bad)


def test_discarding_without_a_limit_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        Staleness("discard")
