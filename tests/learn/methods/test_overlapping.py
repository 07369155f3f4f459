import numpy as np
import pytest

from stoilo.learn.core.assignments import assign_iid
from stoilo.learn.core.data import Part
from stoilo.learn.core.tensors import scale
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.optimizers import Adam, Sgd
from stoilo.learn.methods.overlapping import DoubleBuffered
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
)

SIZE, BLOCK, EPOCHS = 120, 10, 2


def gather(parts):
    digits = load_digits()
    cuts = np.array_split(np.arange(SIZE), parts)
    return Volunteers(Net((64, 10)), digits.images, digits.labels, cuts)


def make(crew, kind=DoubleBuffered, optimizer=None, **more):
    wanted = SynchronousSettings(EPOCHS, block=BLOCK, in_order=True, **more)
    return kind(crew.start(), crew.sizes, optimizer or Sgd(0.5), wanted)


def train_delayed(crew, optimizer, delay):
    """Return the weights of serial training whose gradients come so many steps late."""
    w, pending = crew.net.start(), []
    for step in range(EPOCHS * SIZE // BLOCK):
        rows = np.arange(BLOCK) + step * BLOCK % SIZE
        _, total, _ = crew.net.differentiate(w, crew.images[rows], crew.labels[rows])
        pending.append(scale(total, 1.0 / BLOCK))
        if len(pending) > delay:
            w = optimizer.step(w, pending.pop(0))
    for late in pending:
        w = optimizer.step(w, late)
    return w["w0"]


@pytest.mark.parametrize("make_optimizer", [lambda: Sgd(0.5), lambda: Adam(0.01)])
def test_two_steps_at_once_equal_the_serial_rule_one_step_late(make_optimizer):
    crew = gather(1)
    method = make(crew, optimizer=make_optimizer())
    run_serially(method, crew.answer, room=2)
    ours = method.snapshot.parameters["w0"]
    assert (ours == train_delayed(crew, make_optimizer(), delay=1)).all()
    assert not np.allclose(ours, train_delayed(crew, make_optimizer(), delay=0))


def test_one_step_at_once_equals_the_serial_rule_without_delay():
    crew = gather(1)
    method = make(crew, Synchronous)
    run_serially(method, crew.answer)
    assert (
        method.snapshot.parameters["w0"] == train_delayed(crew, Sgd(0.5), delay=0)
    ).all()


def test_first_batch_applies_nothing_before_the_second_is_out():
    crew = gather(3)
    method = make(crew)
    orders = method.next_orders(99)
    assert [o.snapshot.version for o in orders] == [0] * 6
    assert [o.key[:5] for o in orders] == ["e0/s0"] * 3 + ["e0/s1"] * 3


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_first_the_bits_are_those_of_the_order_of_steps(seed):
    crew = gather(3)
    one, other = make(crew), make(crew)
    run_serially(one, crew.answer, room=6)
    fleet = Fleet([1.0] * 6, jitter=0.9, seed=seed)
    run_replicas(other, crew.answer, fleet)
    assert (one.snapshot.parameters["w0"] == other.snapshot.parameters["w0"]).all()


def test_tasks_that_take_turns_with_the_network_end_in_half_the_time():
    crew, ends = gather(2), {}
    for kind in (Synchronous, DoubleBuffered):
        # Two hosts compute while the answers of two others are under way.
        events = run_replicas(make(crew, kind), crew.answer, Fleet([1.0] * 4))
        ends[kind] = events[-1].time
    steps = EPOCHS * SIZE // 2 // BLOCK
    assert ends == {Synchronous: steps, DoubleBuffered: steps / 2}


def test_mean_of_ways_of_one_local_step_is_the_step_of_the_mean_gradient():
    crew = gather(4)
    local = make(crew, Synchronous, Sgd(1.0), local=LocalWork(0.5))
    plain = make(crew, Synchronous, Sgd(0.5))
    for method in (local, plain):
        run_serially(method, crew.answer)
    ours, theirs = (m.snapshot.parameters["w0"] for m in (local, plain))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_local_steps_use_each_sample_once_an_epoch():
    crew = gather(4)
    method = make(crew, Synchronous, Sgd(1.0), local=LocalWork(0.5, batch=2))
    seen = []
    run_serially(method, lambda order: (seen.append(order), crew.answer(order))[1])
    first = [row + 30 * o.part for o in seen if o.key[:2] == "e0" for row in o.rows]
    assert sorted(first) == list(range(SIZE))
    assert {o.settings["steps"] for o in seen} == {5}


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 6])
def test_any_number_of_nodes_equals_serial_batches(nodes):
    digits, batch = load_digits(), 12
    whole = Part(np.arange(SIZE), digits.labels[:SIZE])
    parts = assign_iid(nodes).deal(whole, batch // nodes)
    crew = Volunteers(
        Net((64, 10)), digits.images, digits.labels, [part.x for part in parts]
    )
    wanted = SynchronousSettings(EPOCHS, block=batch // nodes, in_order=True)
    method = Synchronous(crew.start(), crew.sizes, Sgd(0.5), wanted)
    run_serially(method, crew.answer)
    w = crew.net.start()
    for step in range(EPOCHS * SIZE // batch):
        rows = np.arange(batch) + step * batch % SIZE
        _, total, _ = crew.net.differentiate(
            w, digits.images[rows], digits.labels[rows]
        )
        w = Sgd(0.5).step(w, scale(total, 1.0 / batch))
    np.testing.assert_allclose(method.snapshot.parameters["w0"], w["w0"], rtol=1e-10)


def test_first_answers_that_end_a_step_count_by_their_own_samples():
    crew = gather(5)
    method = make(crew, Synchronous, fraction=0.6)
    orders = method.next_orders(5)
    for order in orders[:3]:
        update = method.take(order, crew.answer(order))
    rows = [row + 24 * o.part for o in orders[:3] for row in o.rows]
    _, total, _ = crew.net.differentiate(
        crew.net.start(), crew.images[rows], crew.labels[rows]
    )
    w = Sgd(0.5).step(crew.net.start(), scale(total, 1.0 / len(rows)))
    np.testing.assert_allclose(method.snapshot.parameters["w0"], w["w0"], rtol=1e-10)
    assert sorted(update.given_up) == sorted(o.key for o in orders[3:])
