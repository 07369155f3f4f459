"""The volunteer against the real project server, in one process."""

from __future__ import annotations

import os
import threading
import time

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError
from stoilo.core.types import Redundancy
from stoilo.executor.verifier.workunit import Disposition, parse_result, render_result
from stoilo.executor.volunteer.ledger import Ledger, ResultRecord
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome
from tests.support.engine import EchoExecutor, ProjectServer
from tests.support.volunteers import VolunteerWorld


def test_copies_come_run_and_go_back(world):
    world.join("a")
    world.ask("w_1", "w_2", data=b"payload")
    assert world.wait("w_1", "w_2") == [OutcomeKind.CANONICAL] * 2
    assert world.outcomes.bodies["w_1"].endswith(b"\npayload")
    header = world.outcomes.bodies["w_1"].partition(b"\n")[0]
    assert b'"result":"w_1_0"' in header


def test_cheat_is_outvoted(world):
    for user in ("a", "b"):
        world.join(user)
    world.join("cheat", EchoExecutor(lambda _: b"lie"))
    names = [f"w{number}_1" for number in range(6)]
    world.ask(*names, redundancy=Redundancy())
    assert set(world.wait(*names)) == {OutcomeKind.CANONICAL}
    assert all(world.outcomes.bodies[name].endswith(b"\ninput") for name in names)


def test_idle_volunteer_hears_of_work_at_once(tmp_path):
    slow = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=3000.0))
    world = VolunteerWorld(tmp_path, slow)
    try:
        world.join("a")
        time.sleep(0.5)  # its first call was answered: nothing to do
        for number in range(3):
            world.ask(f"w{number}_1")
            world.wait(f"w{number}_1")
    finally:
        world.close()


def test_large_file_and_result_travel_whole(world):
    data = os.urandom(300_000)
    world.join("a")
    world.ask("w_1", data=data, result_max_bytes=400_000)
    world.wait("w_1")
    assert world.outcomes.bodies["w_1"].endswith(data)


def test_result_beyond_the_limit_is_reported_as_failed(world, wait_until):
    world.join("a", EchoExecutor(lambda _: b"x" * 200_000))
    world.ask("w_1", result_max_bytes=1000)
    wait_until(
        lambda: world.engine.status("w_1").results[0].outcome is not ResultOutcome.NONE
    )
    assert world.engine.status("w_1").results[0].outcome is ResultOutcome.CLIENT_ERROR


def test_lost_server_is_found_again(world):
    world.join("a")
    world.ask("w_1")
    world.wait("w_1")
    port = world.server.port
    world.server.__exit__()
    world.ask("w_2")
    time.sleep(0.3)
    world.server = ProjectServer(world.engine, port=port).__enter__()
    assert world.wait("w_2") == [OutcomeKind.CANONICAL]


class HeldUp:
    """An answer that is given when it may be."""

    def __init__(self):
        self.asked, self.may_end = threading.Event(), threading.Event()

    def __call__(self, data):
        self.asked.set()
        assert self.may_end.wait(60)
        return data


def test_finished_result_waits_for_a_lost_server_and_a_restart(world):
    stored = threading.Event()

    class Noting(Ledger):
        def store_result(self, record, data):
            super().store_result(record, data)
            stored.set()

    executor = EchoExecutor(run := HeldUp())
    world.join("a", executor, ledger=Noting)
    world.ask("w_1")
    assert run.asked.wait(60)
    port = world.server.port
    world.server.__exit__()
    run.may_end.set()
    assert stored.wait(60)  # without a server
    world.leave()
    world.server = ProjectServer(world.engine, port=port).__enter__()
    second = EchoExecutor()
    world.join("a", second)
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    assert (executor.done, second.done) == (["w_1_0"], [])


def test_executor_in_trouble_is_tried_again_then_reported(world, wait_until):
    class Broken(EchoExecutor):
        def execute(self, work):
            self.done.append(work.result)
            raise InternalError("STO-S005", "the zygote died")

    broken = Broken()
    world.join("a", broken)
    world.ask("w_1")
    wait_until(
        lambda: world.engine.status("w_1").results[0].outcome is not ResultOutcome.NONE
    )
    assert len(broken.done) == 3


def test_cancelled_copy_is_dropped(world, tmp_path, wait_until):
    world.join("a", EchoExecutor(seconds=0.5))
    world.ask("w_1")
    wait_until(lambda: world.engine.status("w_1").results[0].sent_at)
    world.engine.cancel("w_1")
    wait_until(lambda: not any((tmp_path / "a" / "copies").iterdir()))
    assert world.outcomes.kind("w_1") in {None, OutcomeKind.CANCELLED}


def test_cancelled_run_is_killed_not_finished(world, tmp_path, wait_until):
    executor = EchoExecutor(seconds=60)
    world.join("a", executor)
    world.ask("w_1")
    wait_until(lambda: world.engine.status("w_1").results[0].sent_at)
    world.engine.cancel("w_1")
    wait_until(lambda: not any((tmp_path / "a" / "copies").iterdir()))
    assert set(executor.cancelled) <= {"w_1_0"}
    assert executor.done == []
    executor.seconds = 0.0
    world.ask("w_2")
    assert world.wait("w_2") == [OutcomeKind.CANONICAL]


def test_closed_volunteer_does_not_wait_for_its_run(world, tmp_path, wait_until):
    world.join("a", EchoExecutor(seconds=60))
    world.ask("w_1")
    wait_until(lambda: world.engine.status("w_1").results[0].sent_at)
    began = time.monotonic()
    world.leave()
    assert time.monotonic() - began < 50  # the run itself would take 60 s
    assert any((tmp_path / "a" / "copies").iterdir())


def test_late_copy_is_not_started(world):
    executor = EchoExecutor()
    volunteer = world.build("a", executor, clock=lambda: 4e9)
    world.ask("w_1")
    limit = time.monotonic() + 60
    while world.engine.status("w_1").results[0].outcome is ResultOutcome.NONE:
        assert time.monotonic() < limit
        volunteer.tick()
        time.sleep(0.01)
    assert executor.done == []
    volunteer.close()


class Suspicious(EchoExecutor):
    """Refuses inputs that are not what they should be, as the verifier would."""

    def execute(self, work):
        data = super().execute(work)
        if parse_result(data).frame == b"input":
            return data
        header = msgspec.structs.replace(
            parse_result(data).header, disposition=Disposition.REFUSED
        )
        return render_result(header, b"", b"")


def test_damaged_cache_is_fetched_anew_and_nobody_blamed(world, tmp_path):
    world.ask("w_1")
    cached = tmp_path / "a" / "files" / content_digest(b"input")
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"iNput")
    executor = Suspicious()
    world.join("a", executor)
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    assert executor.done == ["w_1_0", "w_1_0"]
    assert len(world.engine.status("w_1").results) == 1


class TightLedger(Ledger):
    """A state directory on a disk that is full for the first `refusals` results."""

    refusals = 5

    def store_result(self, record, data):
        if self.refusals:
            self.refusals -= 1
            raise InternalError("STO-X008", "no room")
        super().store_result(record, data)


def test_full_disk_puts_a_copy_off_and_fails_nobody(world):
    executor = EchoExecutor()
    world.join("a", executor, ledger=TightLedger)
    world.ask("w_1")
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    assert len(executor.done) == TightLedger.refusals + 1
    assert len(world.engine.status("w_1").results) == 1


@pytest.mark.parametrize("shift", [-3e9, -86_400.0, 60.0])
def test_clock_that_was_set_stops_nothing(world, shift):
    executor = EchoExecutor()
    world.join("a", executor, clock=lambda: time.time() + shift)
    world.ask("w_1", "w_2")
    assert world.wait("w_1", "w_2") == [OutcomeKind.CANONICAL] * 2


def test_longer_deadline_of_a_known_copy_counts(tmp_path):
    ledger = Ledger(tmp_path, "http://x/")
    copy = ResultRecord("w_1_0", "w_1", "pure", 10, (), "up", "http://x/up", 1000)
    ledger.add(copy)
    ledger.add(msgspec.structs.replace(copy, deadline=20))
    assert ledger.find("w_1_0").deadline == 20
    ledger.close()
