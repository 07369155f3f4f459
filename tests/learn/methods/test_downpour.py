import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.base import Staleness, shuffle
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.optimizers import Adagrad, Sgd
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
    split_evenly,
)
from tests.support.resuming import store


def gather(parts, size=60, net=None):
    digits = load_digits()
    cut = split_evenly(size, parts)
    return Volunteers(net or Net((64, 10)), digits.images, digits.labels, cut)


def make(crew, optimizer=None, **settings):
    wanted = {"passes": 2, "batch": 10, **settings}
    optimizer = optimizer or Adagrad(0.05)
    return Downpour(crew.start(), crew.sizes, optimizer, DownpourSettings(**wanted))


def test_one_replica_with_one_step_an_order_is_serial_adagrad():
    crew, local = gather(1), Adagrad(0.05)
    method = make(crew)
    run_serially(method, crew.answer)
    w = crew.start().parameters
    for batch in [b for e in range(2) for b in np.split(shuffle(60, 0, e, 0), 6)]:
        _, slope, _ = crew.net.differentiate(w, crew.images[batch], crew.labels[batch])
        w = local.step(w, {n: a / 10 for n, a in slope.items()})
    assert np.allclose(flatten(method.snapshot.parameters), flatten(w), rtol=1e-9)


def test_push_is_the_sum_of_the_steps_and_squares_are_of_what_was_pushed():
    crew, optimizer = gather(1), Adagrad(0.05)
    method, wanted = make(crew, optimizer, passes=1, push=3), 0.0
    while not method.finished:
        order = method.next_orders(1)[0]
        reply = crew.answer(order)
        wanted = wanted + reply.tensors["w0"] ** 2
        method.take(order, reply)
    assert method.snapshot.version == 2
    assert np.allclose(optimizer.squares["w0"], wanted, rtol=1e-12)


def test_squares_survive_a_restart():
    crew = gather(1)
    first, second = Adagrad(0.05), Adagrad(0.05)
    method, again = make(crew, first), make(crew, second)
    order = method.next_orders(1)[0]
    method.take(order, crew.answer(order))
    again.load(method.save())
    assert (first.squares["w0"] == second.squares["w0"]).all()


def test_orders_cover_each_pass_once_the_remainder_included():
    crew = gather(1, size=37)
    method, seen = make(crew, push=2), []
    while not method.finished:
        order = method.next_orders(5)[0]
        seen.append((order.settings["steps"], order.settings["batch"], order.rows))
        method.take(order, crew.answer(order))
    assert [(steps, len(rows)) for steps, _, rows in seen[:2]] == [(2, 20), (2, 17)]
    rows = [row for _, _, order in seen[:2] for row in order]
    assert sorted(rows) == list(range(37))


def test_replica_has_one_order_out_and_goes_on_after_its_answer():
    crew = gather(2)
    method = make(crew)
    one, other = method.next_orders(9)
    assert method.next_orders(9) == []
    method.take(one, crew.answer(one))
    following = method.next_orders(9)
    assert [o.part for o in following] == [one.part]
    assert not set(following[0].rows) & set(one.rows)
    assert other.snapshot.version == 0


def test_half_of_the_replicas_machines_die_and_all_cursors_complete():
    crew = gather(6, size=360)
    method = make(crew)
    fleet = Fleet((1.0,) * 6, deaths={0: 2.5, 1: 2.5, 2: 2.5})
    events = run_replicas(method, crew.answer, fleet)
    assert any(event.update is None for event in events)
    assert method.cursors == (120,) * 6
    keys = [event.order.key for event in events if event.update]
    assert len(keys) == len(set(keys)) == 72


def test_stale_push_counts_in_full_or_damped_or_not_at_all():
    crew = gather(2)
    weights = {}
    for staleness in (Staleness(), Staleness("damp"), Staleness("discard", 0)):
        method = make(crew, Sgd(0.1), staleness=staleness)
        fresh, stale = method.next_orders(2)
        method.take(fresh, crew.answer(fresh))
        before = flatten(method.snapshot.parameters)
        update = method.take(stale, crew.answer(stale))
        step = before - flatten(method.snapshot.parameters)
        whole = 0.1 * flatten(crew.answer(stale).tensors)
        weights[staleness.policy] = (
            update.applied,
            round(step @ whole / (whole @ whole), 9),
        )
        assert method.cursors == (10, 10 if update.applied else 0)
    assert weights == {
        "apply": (True, 1.0),
        "damp": (True, 0.5),
        "discard": (False, 0.0),
    }


def test_samples_of_a_discarded_push_go_out_again_from_newer_parameters():
    crew = gather(2)
    method = make(crew, staleness=Staleness("discard", 0))
    fresh, stale = method.next_orders(2)
    method.take(fresh, crew.answer(fresh))
    assert not method.take(stale, crew.answer(stale)).applied
    again = next(order for order in method.next_orders(2) if order.part == stale.part)
    assert (again.rows, again.snapshot.version) == (stale.rows, 1)
    assert again.key != stale.key
    assert method.take(again, crew.answer(again)).applied
    assert method.next_orders(1)[0].rows != stale.rows


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_training_that_discards_uses_each_sample_once_a_pass_and_ends(limit):
    crew = gather(6, size=360)
    method, used = make(crew, staleness=Staleness("discard", limit)), []
    events = run_replicas(method, crew.answer, Fleet(np.linspace(1, 3, 6), jitter=0.2))
    for event in events:
        part = event.order.part
        used += [(part, row) for row in event.order.rows if event.update.applied]
    assert any(not event.update.applied for event in events)
    assert len(used) == 2 * len(set(used)) == 720


def test_training_ends_after_so_many_updates():
    crew = gather(3)
    method = make(crew, updates=7)
    run_serially(method, crew.answer)
    assert (method.snapshot.version, method.next_orders(3)) == (7, [])


def test_first_replica_warms_up_alone():
    crew = gather(3)
    method, parts = make(crew, warmup=2), []
    for _ in range(2):
        orders = method.next_orders(9)
        parts += [order.part for order in orders]
        method.take(orders[0], crew.answer(orders[0]))
    assert parts == [0, 0]
    assert {order.part for order in method.next_orders(9)} == {0, 1, 2}


def test_epoch_ends_when_the_slowest_replica_has_made_its_pass():
    crew = gather(3)
    events = run_replicas(make(crew), crew.answer, Fleet((1, 1, 5)))
    ended = [event.update.epoch_ended for event in events]
    assert sum(ended) == 2
    assert ended[-1]


def test_second_answer_changes_nothing():
    crew = gather(1)
    method = make(crew)
    order = method.next_orders(1)[0]
    method.take(order, crew.answer(order))
    assert not method.take(order, crew.answer(order)).applied
    assert method.snapshot.version == 1


@pytest.mark.parametrize(
    "name", ["passes", "batch", "push", "fetch", "warmup", "updates"]
)
def test_settings_that_cannot_train_are_refused(name):
    with pytest.raises(UsageError, match="STO-T040"):
        DownpourSettings(**{"passes": 1, "batch": 1, name: -1})


@pytest.mark.parametrize("split", [2, 3, 99])
def test_batch_that_is_split_is_the_whole_batch_whatever_comes_first(split):
    """Control: a sum that leaves sizes out is another gradient."""
    crew, ends = gather(1, size=25), []
    for turn in (1, -1):
        method = make(crew, split=split)
        while not method.finished:
            orders = method.next_orders(99)
            assert len(orders) == len({order.key for order in orders}) > 1
            for order in orders[::turn]:
                method.take(order, crew.answer(order))
        ends.append(flatten(method.snapshot.parameters))
    whole = make(crew)
    run_serially(whole, crew.answer)
    assert method.snapshot.version == whole.snapshot.version == 6
    assert ends[0].tobytes() == ends[1].tobytes()
    assert np.allclose(ends[0], flatten(whole.snapshot.parameters), rtol=1e-9)


def test_share_that_is_lost_goes_out_again_and_the_others_answers_stay():
    crew = gather(1)
    method = make(crew, split=2, passes=1)
    one, other = method.next_orders(9)
    method.take(one, crew.answer(one))
    again = make(crew, split=2, passes=1)
    again.load(store(method.save()))
    again.lose(other)
    (repeated,) = again.next_orders(9)
    assert (repeated.key, repeated.rows) == (other.key, other.rows)
    update = again.take(repeated, crew.answer(repeated))
    assert (update.applied, update.version) == (True, 1)
    assert not again.take(other, crew.answer(other)).applied


@pytest.mark.parametrize("bad", [{"push": 2}, {"compensation": 1.0}])
def test_batch_is_not_split_where_steps_or_bases_differ(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        DownpourSettings(1, 10, split=2, **bad)


def test_old_share_discards_the_whole_batch_and_all_of_it_goes_out_again():
    crew = gather(2, size=40)
    method = make(crew, split=2, staleness=Staleness("discard", 0))
    orders = method.next_orders(9)
    mine, others = ([o for o in orders if o.part == part] for part in (0, 1))
    for order in (mine[0], *others):
        method.take(order, crew.answer(order))
    assert method.snapshot.version == 1  # mine[0] is of version 0
    assert not method.take(mine[1], crew.answer(mine[1])).applied
    again = [order for order in method.next_orders(9) if order.part == 0]
    assert [order.rows for order in again] == [order.rows for order in mine]
    assert {order.snapshot.version for order in again} == {1}
