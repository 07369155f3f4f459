"""What a task has used, how far it is, and when a state is to be kept."""

import dataclasses
from dataclasses import dataclass

import pytest

from stoilo.core.types import RunLimits
from stoilo.executor.verifier.boinc_slot import SlotInfo
from stoilo.executor.verifier.checkpoints import Checkpoint, KeptRun, Reckoning
from stoilo.sandbox.process.channel import Progress

INFO = SlotInfo("pure", "w", "w_0", cpu_s=100.0, checkpoint_period_s=60.0)
RUN = KeptRun("ab" * 32, RunLimits(cpu_s=50, wall_s=80, result_bytes=4000))


@dataclass
class FakeChild:
    """A child with settable times, s."""

    used: float = 0.0
    zygote: float = 0.0
    lasted: float = 0.0

    def cpu_s(self):
        return self.used

    def group_cpu_s(self):
        return self.used + self.zygote

    def elapsed_s(self):
        return self.lasted


def make(kept=None, info=INFO):
    reckoning, child = Reckoning(info, 0.0, own_cpu=lambda: 0.5), FakeChild()
    reckoning.begin(RUN, kept)
    reckoning.take_child(child)
    return reckoning, child


def test_earlier_starts_own_time_zygote_and_child_are_counted():
    reckoning, child = make()
    child.used, child.zygote = 7.0, 0.25
    assert reckoning.status().current_cpu_time == 107.75


def test_time_never_falls():
    reckoning, child = make()
    child.used = 7.0
    before = reckoning.status().current_cpu_time
    child.used = 1.0
    assert reckoning.status().current_cpu_time == before


def test_task_that_tells_nothing_is_as_far_as_its_time():
    reckoning, child = make()
    child.used = 25.0
    assert reckoning.status().fraction_done == 0.5
    child.used = 1000.0
    assert reckoning.status().fraction_done == 0.99


def test_task_that_tells_is_as_far_as_it_says():
    reckoning, child = make()
    child.used = 25.0
    reckoning.hear(Progress(1, 0.125))
    assert reckoning.status().fraction_done == 0.125


def test_finished_task_is_all_done():
    reckoning, _ = make()
    reckoning.hear(Progress(1, 0.25))
    reckoning.finish()
    assert reckoning.status().fraction_done == 1.0


def test_fraction_lies_between_what_the_client_says():
    info = dataclasses.replace(INFO, fraction_start=0.5, fraction_end=0.75)
    reckoning, _ = make(info=info)
    assert reckoning.status().fraction_done == 0.5
    reckoning.hear(Progress(1, 1.0))
    assert reckoning.status().fraction_done == 0.75


def test_state_is_kept_with_what_it_cost_from_the_beginning():
    kept = Checkpoint(RUN.admission, 4, b"s", cpu_s=10.0, wall_s=20.0, fraction=0.25)
    reckoning, child = make(kept)
    child.used, child.lasted = 3.0, 5.0
    assert reckoning.status().fraction_done == 0.25
    reckoning.hear(Progress(5, None, b"t"))
    due = reckoning.due(60.0, at_once=False)
    assert due.checkpoint == Checkpoint(RUN.admission, 5, b"t", 13.0, 25.0, 0.25)


def test_state_waits_for_the_clients_period_unless_it_ends():
    reckoning, _ = make()
    reckoning.hear(Progress(1, None, b"s"))
    assert reckoning.due(59.0, at_once=False) is None
    assert reckoning.due(59.0, at_once=True) is not None
    assert reckoning.due(60.0, at_once=False) is not None


def test_written_state_is_reported_and_not_written_again():
    reckoning, child = make()
    child.used = 2.0
    reckoning.hear(Progress(1, None, b"s"))
    assert reckoning.status().checkpoint_cpu_time == 100.0
    due = reckoning.due(60.0, at_once=False)
    reckoning.settle(due, 60.0, saved=True)
    assert reckoning.status().checkpoint_cpu_time == 102.5
    assert reckoning.due(1000.0, at_once=True) is None


def test_newer_state_waits_another_period():
    reckoning, _ = make()
    reckoning.hear(Progress(1, None, b"s"))
    due = reckoning.due(60.0, at_once=False)
    reckoning.hear(Progress(2, None, b"t"))
    reckoning.settle(due, 60.0, saved=True)
    assert reckoning.due(119.0, at_once=False) is None
    assert reckoning.due(120.0, at_once=False).checkpoint.step == 2


def test_state_that_could_not_be_written_is_not_reported():
    reckoning, _ = make()
    reckoning.hear(Progress(1, None, b"s"))
    reckoning.settle(reckoning.due(60.0, at_once=False), 60.0, saved=False)
    assert reckoning.status().checkpoint_cpu_time == 100.0


@pytest.mark.parametrize(
    "progress",
    [Progress(1), Progress(0, None, b"s"), Progress(1, None, bytes(1001))],
)
def test_what_cannot_be_gone_on_from_is_not_kept(progress):
    reckoning, _ = make()
    reckoning.hear(progress)
    assert reckoning.due(1000.0, at_once=True) is None


def test_forgotten_state_counts_no_more():
    kept = Checkpoint(RUN.admission, 4, b"s", cpu_s=25.0, fraction=0.5)
    reckoning, _ = make(kept)
    reckoning.forget()
    assert reckoning.status().fraction_done == 0.0
