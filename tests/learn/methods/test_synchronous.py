import math
from dataclasses import replace

import numpy as np
import pytest

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import add, flatten, safe_norm, scale
from stoilo.learn.methods import robust
from stoilo.learn.methods.base import round_up
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.robust import CoordinateMedian, Krum, TrimmedMean
from stoilo.learn.methods.synchronous import (
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
)


def gather(sizes, net=None):
    """Volunteers with parts of these sizes."""
    digits = load_digits()
    cuts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return Volunteers(net or Net((64, 8, 10)), digits.images, digits.labels, cuts)


def make(crew, *, rate=0.5, optimizer=None, **settings):
    return Synchronous(
        crew.start(),
        crew.sizes,
        optimizer or Sgd(rate),
        SynchronousSettings(**{"epochs": 1, **settings}),
    )


def measure_gap(one, other):
    return safe_norm(add(one, other, -1.0)) / safe_norm(other)


@pytest.mark.parametrize("sizes", [(1, 700), (256, 256, 188), (5,)])
def test_step_equals_a_step_on_all_data_whatever_the_parts(sizes):
    crew = gather(sizes)
    whole = gather([sum(sizes)])
    ours, local = make(crew), make(whole)
    run_serially(ours, crew.answer)
    run_serially(local, whole.answer)
    assert measure_gap(ours.snapshot.parameters, local.snapshot.parameters) < 1e-12


def test_averaging_means_of_unequal_parts_would_be_another_step():
    crew = gather((1, 700))

    def mean_of_means(replies):
        total = {name: np.zeros_like(a) for name, a in replies[0].tensors.items()}
        for reply in replies:
            total = add(total, reply.tensors, 701 / (2 * reply.samples))
        return total

    wrong = Synchronous(
        crew.start(), crew.sizes, Sgd(0.5), SynchronousSettings(epochs=1),
        combine=mean_of_means,
    )  # fmt: skip
    run_serially(wrong, crew.answer)
    right = make(crew)
    run_serially(right, crew.answer)
    assert measure_gap(wrong.snapshot.parameters, right.snapshot.parameters) > 0.01


def test_arrival_order_leaves_identical_bits():
    crew = gather((100, 90, 80, 70))
    found = []
    for times in ((1, 2, 3, 4), (4, 3, 2, 1)):
        method = make(crew, epochs=3)
        run_replicas(method, crew.answer, Fleet(times))
        found.append(flatten(method.snapshot.parameters).tobytes())
    assert found[0] == found[1]


def test_epoch_in_blocks_uses_each_sample_once():
    crew = gather((10, 7))
    method = make(crew, block=3)
    used = []
    while not method.finished:
        for order in method.next_orders(9):
            used += [(order.part, row) for row in order.rows]
            method.take(order, crew.answer(order))
    assert sorted(used) == [(p, r) for p, n in ((0, 10), (1, 7)) for r in range(n)]
    assert method.steps == 4  # the second part gives none to the last one


def test_two_epochs_are_shuffled_differently():
    crew = gather((20,))
    method = make(crew, epochs=2, block=20)
    first, second = (
        [
            (order, method.take(order, crew.answer(order)))
            for order in method.next_orders(1)
        ]
        for _ in range(2)
    )
    assert first[0][0].rows != second[0][0].rows


@pytest.mark.parametrize(("size", "fraction", "needed"), [
    (32, 0.875, 28), (4, 0.5, 2), (3, 0.5, 2), (1, 0.1, 1), (10, 1.0, 10), (10, 0.7, 7),
])  # fmt: skip
def test_fraction_is_rounded_up(size, fraction, needed):
    assert round_up(fraction, size) == needed


def test_step_ends_with_the_fraction_and_the_late_answer_is_discarded():
    crew = gather((30, 30, 30, 30))
    method = make(crew, epochs=2, fraction=0.75)
    *early, late = method.next_orders(4)
    for order in early:
        method.take(order, crew.answer(order))
    before = method.snapshot
    update = method.take(late, crew.answer(late))
    assert (before.version, update.applied, update.staleness) == (1, False, 1)
    assert method.snapshot is before


def test_late_answer_is_queued_for_the_next_step_and_weighs_by_its_samples():
    crew = gather((30, 30))
    method = make(crew, epochs=2, fraction=0.5, late="queue")
    one, late = method.next_orders(2)
    method.take(one, crew.answer(one))
    assert method.take(late, crew.answer(late)).applied
    second = method.snapshot
    order = method.next_orders(1)[0]
    fresh, old = crew.answer(order), crew.answer(late)
    method.take(order, fresh)
    mean = {n: (fresh.tensors[n] + old.tensors[n]) / 60 for n in fresh.tensors}
    wanted = add(second.parameters, mean, -0.5)
    assert measure_gap(method.snapshot.parameters, wanted) < 1e-12


def test_lost_order_is_given_out_again_and_the_step_ends():
    crew = gather((30, 30, 30))
    method = make(crew, epochs=3)
    events = run_replicas(method, crew.answer, Fleet((1, 1, 1), lost=0.4, seed=3))
    keys = [event.order.key for event in events if event.update]
    assert any(event.update is None for event in events)
    assert len(keys) == len(set(keys)) == 9


def test_second_answer_to_a_key_changes_nothing():
    crew = gather((30, 30))
    method = make(crew)
    order, _ = method.next_orders(2)
    method.take(order, crew.answer(order))
    assert not method.take(order, crew.answer(order)).applied
    assert method.snapshot.version == 0


def test_loss_that_is_a_sum_steps_by_the_sum():
    crew = gather((20, 10))
    summed, mean = make(crew, rate=0.5 / 30, reduction="sum"), make(crew, rate=0.5)
    run_serially(summed, crew.answer)
    run_serially(mean, crew.answer)
    assert measure_gap(summed.snapshot.parameters, mean.snapshot.parameters) < 1e-12


def test_parameter_without_gradient_stays():
    crew = gather((20,))
    method = make(crew)
    order = method.next_orders(1)[0]
    reply = crew.answer(order)
    kept = {name: a for name, a in reply.tensors.items() if name != "b0"}
    method.take(order, Reply(0, reply.samples, reply.loss_sum, kept))
    assert method.snapshot.parameters["b0"] is order.snapshot.parameters["b0"]


@pytest.mark.parametrize("bad", [
    {"epochs": 0}, {"block": -1}, {"fraction": 0.0}, {"fraction": 1.5},
    {"fraction": math.nan},
])  # fmt: skip
def test_settings_that_cannot_train_are_refused(bad):
    with pytest.raises(UsageError, match="STO-T040"):
        SynchronousSettings(**{"epochs": 1, **bad})


def test_empty_part_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        Synchronous(Snapshot(0, {}), [3, 0], Sgd(1.0), SynchronousSettings(1))


@pytest.mark.parametrize("rule", [CoordinateMedian(), TrimmedMean(), Krum()])
def test_flipped_gradients_turn_a_plain_step_round_and_not_a_robust_one(rule):
    crew, steps = gather((40,) * 10, Net((64, 10))), []

    def cheat(order):
        reply = crew.answer(order)
        factor = -10.0 if order.part < 2 else 1.0
        return replace(reply, tensors=scale(reply.tensors, factor))

    for combine, answer in (
        (sum_gradients, crew.answer),
        (sum_gradients, cheat),
        (robust.RobustSum(rule), cheat),
    ):
        method = Synchronous(
            crew.start(), crew.sizes, Sgd(1.0), SynchronousSettings(1), combine=combine
        )
        run_serially(method, answer)
        steps.append(add(method.snapshot.parameters, crew.start().parameters, -1.0))
    honest, plain, sturdy = steps
    assert (flatten(honest) @ flatten(plain)) < 0
    assert (flatten(honest) @ flatten(sturdy)) > 0.7 * safe_norm(honest) * safe_norm(
        sturdy
    )
