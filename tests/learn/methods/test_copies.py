from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, UsageError
from stoilo.learn.core.assignments import assign_duplicate, assign_iid
from stoilo.learn.core.tensors import scale
from stoilo.learn.methods.copies import Copied
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.synchronous import Synchronous, SynchronousSettings
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    run_replicas,
    run_serially,
)
from tests.support.resuming import Drive

CHOICES = st.lists(st.integers(0, 99), max_size=60)


def gather(parts, size=240):
    digits = load_digits()
    cuts = np.array_split(np.arange(size), parts)
    return Volunteers(Net((64, 10)), digits.images, digits.labels, cuts)


def make(crew, assignment, *, epochs=2, block=20, **options):
    settings = SynchronousSettings(epochs, block=block)
    inner = Synchronous(crew.start(), crew.sizes, Sgd(0.5), settings)
    return Copied(inner, assignment, **options)


def train_plainly(crew):
    method = Synchronous(
        crew.start(), crew.sizes, Sgd(0.5), SynchronousSettings(2, block=20)
    )
    run_serially(method, crew.answer)
    return method.snapshot.parameters["w0"]


class OneLiar:
    """Node 1 sends gradients that are three times too large."""

    def __init__(self, crew):
        self.crew = crew

    def answer(self, order):
        reply = self.crew.answer(order)
        if not order.key.endswith("/n1"):
            return reply
        return replace(reply, tensors=scale(reply.tensors, 3.0))


def test_two_owners_that_agree_leave_the_bits_of_one():
    crew, dealt = gather(6), assign_iid(4, 2)
    method = make(crew, dealt, agree=2)
    run_serially(method, crew.answer, room=5)
    assert (method.snapshot.parameters["w0"] == train_plainly(crew)).all()
    assert method.disputes == []


def test_one_liar_is_named_and_does_not_count_with_two_owners():
    crew, dealt = gather(6), assign_iid(4, 2)
    method = make(crew, dealt, agree=2)
    run_serially(method, OneLiar(crew).answer, room=5)
    assert (method.snapshot.parameters["w0"] == train_plainly(crew)).all()
    assert len(method.disputes) == sum(1 in own for own in dealt.owners) * 4  # steps
    assert all(key.endswith("/n1") for key in method.disputes)


def test_with_one_owner_the_same_liar_counts_unnoticed():
    crew = gather(4)
    method = make(crew, assign_iid(4))
    run_serially(method, OneLiar(crew).answer, room=5)
    assert not np.allclose(method.snapshot.parameters["w0"], train_plainly(crew))
    assert method.disputes == []


def test_third_node_decides_between_two_that_differ():
    crew = gather(2)
    method = make(crew, assign_duplicate(4, 2), agree=2, epochs=1, block=0)
    orders = method.next_orders(2)  # both copies of one block
    for order in orders:
        method.take(order, OneLiar(crew).answer(order))
    further = [o for o in method.next_orders(9) if o.work == orders[0].work]
    differ = orders[0].part == 0  # the block of nodes 0 and 1
    assert [order.key[-3:] for order in further] == (["/n2"] if differ else [])


def test_answers_that_never_agree_end_in_a_named_error():
    crew, numbers = gather(1), iter(range(1, 99))

    def answer(order):
        reply = crew.answer(order)
        return replace(reply, tensors=scale(reply.tensors, float(next(numbers))))

    method = make(crew, assign_duplicate(2, 2), agree=2)
    with pytest.raises(InternalError, match="STO-T021"):
        run_serially(method, answer)


def test_first_of_several_owners_is_enough_when_one_must_agree():
    crew = gather(6)
    method = make(crew, assign_iid(4, 2))
    fleet = Fleet([1.0, 1.0, 1.0, 50.0], deadline=1000.0)
    events = run_replicas(method, crew.answer, fleet)
    assert (method.snapshot.parameters["w0"] == train_plainly(crew)).all()
    assert max(event.time for event in events) < 50.0


def test_step_is_rescued_once_and_ends_with_a_named_error_after():
    crew = gather(2)
    method = make(crew, assign_iid(2), timeout_s=10.0)
    method.note_time(0.0)
    first, second = method.next_orders(9)
    method.take(first, crew.answer(first))
    method.note_time(10.0)
    (rescue,) = method.next_orders(9)
    assert rescue.work == second.work != rescue.key
    assert method.next_alarm() == 20.0
    with pytest.raises(InternalError, match="STO-T021"):
        method.note_time(20.0)


def test_rescued_answer_goes_on_with_the_bits_of_a_step_in_time():
    crew = gather(2)
    method = make(crew, assign_iid(2), timeout_s=10.0)
    method.note_time(0.0)
    first, _ = method.next_orders(9)
    method.take(first, crew.answer(first))
    method.note_time(10.0)
    run_serially(method, crew.answer)
    assert (method.snapshot.parameters["w0"] == train_plainly(crew)).all()


@pytest.mark.parametrize("seed", range(5))
def test_dead_node_does_not_stop_those_that_wait_for_nobody(seed):
    crew = gather(4)
    inner = Downpour(crew.start(), crew.sizes, Sgd(0.1), DownpourSettings(2, 20))
    method = Copied(inner, assign_iid(4), timeout_s=5.0, waits=False)
    fleet = Fleet([1.0] * 4, jitter=0.3, deaths={2: 1.5}, deadline=20.0, seed=seed)
    events = run_replicas(method, crew.answer, fleet)
    took = [e.time for e in events if e.update and e.update.applied]
    assert method.finished
    gaps = np.diff(took)
    assert gaps[: len(took) // 2].max() < 5.0  # the others go on meanwhile


def test_lost_copies_go_out_again_and_nothing_is_counted_twice():
    crew = gather(6)
    method = make(crew, assign_iid(4, 2), agree=2)
    fleet = Fleet([1.0, 2.0, 3.0, 4.0], lost=0.2, deadline=9.0, seed=1)
    run_replicas(method, crew.answer, fleet)
    assert (method.snapshot.parameters["w0"] == train_plainly(crew)).all()


def test_more_must_agree_than_there_are_owners_is_refused():
    with pytest.raises(UsageError, match="STO-T040"):
        make(gather(2), assign_iid(2), agree=2)


@settings(max_examples=25)
@given(before=CHOICES, after=CHOICES)
def test_resumed_copies_equal_those_that_went_on(before, after):
    crew = gather(6, 60)

    def anew():
        return make(crew, assign_iid(4, 2), agree=2, block=5)

    ours = Drive(anew(), OneLiar(crew).answer, room=5)
    ours.run(before)
    resumed = ours.resume(anew)
    assert resumed.run(after) == ours.run(after)
    assert resumed.method.disputes == ours.method.disputes
    one, other = ours.method.snapshot, resumed.method.snapshot
    assert (one.parameters["w0"] == other.parameters["w0"]).all()
