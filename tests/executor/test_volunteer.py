"""The volunteer against the real project server, in one process and killed in its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, InternalError, UsageError
from stoilo.core.types import Redundancy
from stoilo.executor.control import read_control, write_control
from stoilo.executor.host import Volunteer
from stoilo.executor.ledger import CopyRecord, Ledger
from stoilo.executor.pace import Backoff, Settings
from stoilo.executor.result import Disposition, parse_result, render_result
from stoilo.executor.standing import read_status
from stoilo.executor.transfer import Transfer
from stoilo.executor.volunteer import choose_opt_in, main
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from stoilo.server.engines.interface import CopyOutcome, OutcomeKind
from stoilo.testing.boincslot import is_running
from stoilo.testing.engine import (
    BodyValidation,
    EchoExecutor,
    OutcomeRecorder,
    ProjectServer,
    make_spec,
)

OPTIONS = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=0.05))
SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=4, max_success=4
)


class World:
    """An engine, its server, and volunteers in threads."""

    def __init__(self, directory, options=OPTIONS):
        self.directory = directory
        self.engine = EmbeddedEngine(directory / "engine", options=options)
        self.outcomes = OutcomeRecorder()
        self.engine.start(BodyValidation(), self.outcomes)
        self.server = ProjectServer(self.engine).__enter__()
        self.volunteers = []

    def key(self, user):
        return self.engine.accounts.ensure(
            f"{user}@example.org", self.engine.now()
        ).weak_key

    def build(
        self,
        user,
        executor=None,
        *,
        key=None,
        clock=time.time,
        ledger=Ledger,
        **settings,
    ):
        settings = Settings(
            self.server.url, key or self.key(user), backoff_s=(0.05, 0.3), **settings
        )
        return Volunteer(
            settings,
            ledger(self.directory / user, self.server.url),
            Transfer(self.server.url, timeout_s=5),
            executor or EchoExecutor(),
            clock=clock,
        )

    def join(self, user, executor=None, **options):
        volunteer = self.build(user, executor, **options)
        thread = threading.Thread(target=volunteer.run)
        thread.start()
        self.volunteers.append((volunteer, thread))
        return volunteer

    def leave(self):
        for volunteer, thread in self.volunteers:
            volunteer.stop()
            thread.join()
            volunteer.close()
        self.volunteers.clear()

    def ask(self, *names, redundancy=SINGLE, **changes):
        specs = [make_spec(name, redundancy=redundancy, **changes) for name in names]
        self.engine.create_workunits(specs)

    def wait(self, *names, seconds=90.0):
        limit = time.monotonic() + seconds
        while not all(name in self.outcomes.outcomes for name in names):
            assert time.monotonic() < limit, self.engine.status(names[0])
            time.sleep(0.01)
        return [self.outcomes.outcomes[name].kind for name in names]

    def close(self):
        self.leave()
        self.server.__exit__()
        self.engine.close()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


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
    slow = EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=20.0))
    world = World(tmp_path, slow)
    try:
        world.join("a")
        time.sleep(0.5)  # its first call was answered: nothing to do
        for number in range(3):
            world.ask(f"w{number}_1")
            world.wait(f"w{number}_1", seconds=15)
    finally:
        world.close()


def test_large_file_and_result_travel_whole(world):
    data = os.urandom(300_000)
    world.join("a")
    world.ask("w_1", data=data, result_max_bytes=400_000)
    world.wait("w_1")
    assert world.outcomes.bodies["w_1"].endswith(data)


def test_result_beyond_the_limit_is_reported_as_failed(world):
    world.join("a", EchoExecutor(lambda _: b"x" * 200_000))
    world.ask("w_1", result_max_bytes=1000)
    limit = time.monotonic() + 60
    while world.engine.status("w_1").copies[0].outcome is CopyOutcome.NONE:
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert world.engine.status("w_1").copies[0].outcome is CopyOutcome.CLIENT_ERROR


def test_unknown_key_ends_the_volunteer_with_its_code(world):
    volunteer = world.build("a", key="0" * 32)
    with pytest.raises(DeniedError, match="STO-X003"):
        volunteer.run()
    volunteer.close()


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


def test_finished_result_waits_for_a_lost_server_and_a_restart(world):
    executor = EchoExecutor(seconds=0.4)
    world.join("a", executor)
    world.ask("w_1")
    limit = time.monotonic() + 60
    while not world.engine.status("w_1").copies[0].sent_at:
        assert time.monotonic() < limit
        time.sleep(0.01)
    time.sleep(0.2)  # it runs now
    port = world.server.port
    world.server.__exit__()
    time.sleep(0.6)  # it has finished without a server
    world.leave()
    world.server = ProjectServer(world.engine, port=port).__enter__()
    second = EchoExecutor()
    world.join("a", second)
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    assert (executor.done, second.done) == (["w_1_0"], [])


def test_executor_in_trouble_is_tried_again_then_reported(world):
    class Broken(EchoExecutor):
        def execute(self, work):
            self.done.append(work.result)
            raise InternalError("STO-S005", "the zygote died")

    broken = Broken()
    world.join("a", broken)
    world.ask("w_1")
    limit = time.monotonic() + 60
    while world.engine.status("w_1").copies[0].outcome is CopyOutcome.NONE:
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert len(broken.done) == 3


def test_cancelled_copy_is_dropped(world, tmp_path):
    world.join("a", EchoExecutor(seconds=0.5))
    world.ask("w_1")
    limit = time.monotonic() + 60
    while not world.engine.status("w_1").copies[0].sent_at:
        assert time.monotonic() < limit
        time.sleep(0.01)
    world.engine.cancel("w_1")
    while any((tmp_path / "a" / "copies").iterdir()):
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert world.outcomes.kind("w_1") in {None, OutcomeKind.CANCELLED}


def test_cancelled_run_is_killed_not_finished(world, tmp_path):
    executor = EchoExecutor(seconds=60)
    world.join("a", executor)
    world.ask("w_1")
    limit = time.monotonic() + 60
    while not world.engine.status("w_1").copies[0].sent_at:
        assert time.monotonic() < limit
        time.sleep(0.01)
    world.engine.cancel("w_1")
    while any((tmp_path / "a" / "copies").iterdir()):
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert set(executor.cancelled) <= {"w_1_0"}
    assert executor.done == []
    executor.seconds = 0.0
    world.ask("w_2")
    assert world.wait("w_2") == [OutcomeKind.CANONICAL]


def test_closed_volunteer_does_not_wait_for_its_run(world, tmp_path):
    world.join("a", EchoExecutor(seconds=60))
    world.ask("w_1")
    limit = time.monotonic() + 60
    while not world.engine.status("w_1").copies[0].sent_at:
        assert time.monotonic() < limit
        time.sleep(0.01)
    began = time.monotonic()
    world.leave()
    assert time.monotonic() - began < 50  # the run itself would take 60 s
    assert any((tmp_path / "a" / "copies").iterdir())


def test_late_copy_is_not_started(world):
    executor = EchoExecutor()
    volunteer = world.build("a", executor, clock=lambda: 4e9)
    world.ask("w_1")
    limit = time.monotonic() + 60
    while world.engine.status("w_1").copies[0].outcome is CopyOutcome.NONE:
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
    assert len(world.engine.status("w_1").copies) == 1


def test_pauses_grow_to_a_limit_and_start_again():
    backoff = Backoff(1.0, 10.0, draw=lambda: 1.0)
    assert [backoff.fail() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    backoff.reset()
    assert backoff.fail() == 1.0


def test_typed_level_only_lowers(monkeypatch, tmp_path):
    file, state = tmp_path / "optin.toml", tmp_path / "state"
    monkeypatch.setattr("stoilo.executor.volunteer.default_files", lambda: (file,))

    def choose(level):
        return choose_opt_in(state, max_level=level)

    assert (choose(None).max_level, choose("numeric").max_level) == ("pure", "pure")
    file.write_text('max_level = "pure"\n')
    assert choose("numeric").max_level == "pure"
    file.write_text('max_level = "tensor"\nrequire_review = true\n')
    chosen = choose("numeric")
    assert (chosen.max_level, chosen.require_review) == ("numeric", True)


def test_named_file_adds_to_the_others(monkeypatch, tmp_path):
    usual, named = tmp_path / "usual.toml", tmp_path / "named.toml"
    monkeypatch.setattr("stoilo.executor.volunteer.default_files", lambda: (usual,))
    with pytest.raises(UsageError, match="STO-A060"):
        choose_opt_in(tmp_path / "state", file=named)
    named.write_text('max_level = "tensor"\n')
    assert choose_opt_in(tmp_path / "state", file=named).max_level == "tensor"
    usual.write_text('max_level = "numeric"\n')
    assert choose_opt_in(tmp_path / "state", file=named).max_level == "numeric"


def test_frozen_volunteer_has_no_switch_for_root_or_level(monkeypatch, capsys):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    arguments = ["--project", "http://127.0.0.1:1/", "--key", "k", "--state", "x"]
    for more in (["--root", "x"], ["--max-level", "gpu"], ["--opt-in", "x"]):
        with pytest.raises(SystemExit):
            main(arguments + more)
    assert "unrecognized arguments" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--project", "ftp://x/", "--key", "k", "--root", "r"], "STO-U003"),
        (["--project", "http://x/", "--key", "@/none", "--root", "r"], "STO-U004"),
        (["--project", "http://x/", "--key", "k", "--root", "/none"], "STO-U004"),
    ],
)
def test_bad_argument_exits_2_with_its_code(tmp_path, capsys, arguments, code):
    assert main([*arguments, "--state", str(tmp_path)]) == UsageError.exit_code
    assert code in capsys.readouterr().err


CHILD = """
import sys, threading
from pathlib import Path
from stoilo.executor.ledger import Ledger
from stoilo.executor.transfer import Transfer
from stoilo.executor.host import Volunteer
from stoilo.executor.pace import Settings
from stoilo.testing.engine import EchoExecutor
url, key, state = sys.argv[1:]
settings = Settings(url, key, backoff_s=(0.05, 0.3))
Volunteer(
    settings, Ledger(Path(state), url), Transfer(url), EchoExecutor(seconds=0.01)
).run()
"""


def kill_volunteers(world, tmp_path, *, tasks, kills, seed):
    """Kill a volunteer again and again while it works; returns kills and outcomes."""
    key, draw = world.key("killed"), random.Random(seed)
    names = [f"w{number}_1" for number in range(tasks)]
    world.ask(*names)
    command = [sys.executable, "-c", CHILD, world.server.url, key, str(tmp_path / "k")]
    done = 0
    for _ in range(kills):
        child = subprocess.Popen(command)
        time.sleep(0.35 + draw.random())
        child.send_signal(signal.SIGKILL)
        child.wait()
        done += 1
    child = subprocess.Popen(command)
    try:
        kinds = world.wait(*names, seconds=150)
    finally:
        child.kill()
        child.wait()
    return done, kinds, names


def test_killed_volunteer_loses_no_copy(world, tmp_path):
    _, kinds, names = kill_volunteers(world, tmp_path, tasks=40, kills=3, seed=1)
    assert set(kinds) == {OutcomeKind.CANONICAL}
    for name in names:  # one copy each: nothing was lost, nothing given out twice
        assert len(world.engine.status(name).copies) == 1
        assert world.outcomes.calls[name] == 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_volunteer_killed_many_times_loses_no_copy(world, tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    done, kinds, names = kill_volunteers(
        world, tmp_path, tasks=400, kills=25, seed=seed
    )
    assert done == 25
    assert set(kinds) == {OutcomeKind.CANONICAL}
    assert all(len(world.engine.status(name).copies) == 1 for name in names)


def interrupt_while_waiting(stop, wait, rounds):
    """Run `wait` again and again while signals call `stop` here; returns the signals."""
    signals = []
    before = signal.signal(signal.SIGALRM, lambda *_: (signals.append(1), stop()))
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        for _ in range(rounds):
            wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return len(signals)


@pytest.mark.timeout(60)
def test_stop_from_a_signal_handler_never_blocks(world):
    volunteer = world.build("ann")

    def wait():
        volunteer._stopping = False
        volunteer._forget_wakes()
        volunteer._wait(0.0005)

    assert interrupt_while_waiting(volunteer.stop, wait, rounds=3000) > 100
    volunteer.close()


def steer(world, user, **changes):
    directory = world.directory / user
    write_control(
        directory, msgspec.structs.replace(read_control(directory), **changes)
    )


def test_suspended_volunteer_runs_nothing_until_resumed(world, wait_until):
    executor = EchoExecutor(seconds=60)
    world.join("a", executor)
    world.ask("w_1")
    wait_until(lambda: world.engine.status("w_1").copies[0].sent_at)
    steer(world, "a", suspended=True)
    wait_until(lambda: executor.cancelled)
    wait_until(lambda: read_status(world.directory / "a").suspended)
    executor.seconds = 0.0
    assert executor.done == []
    steer(world, "a", suspended=False)
    assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    assert executor.done == ["w_1_0"]  # the ended run was nobody's failure


def test_update_calls_now_whatever_the_project_said(tmp_path, wait_until):
    world = World(tmp_path, EngineOptions(pace=Pace(next_rpc_delay_s=3000.0)))
    try:
        world.join("a")
        wait_until(lambda: read_status(tmp_path / "a").last_contact)
        before = read_status(tmp_path / "a").last_contact
        steer(world, "a", updates=1)
        wait_until(lambda: read_status(tmp_path / "a").last_contact > before)
    finally:
        world.close()


def test_status_is_read_beside_a_running_volunteer(world, wait_until):
    executor = EchoExecutor(seconds=60)
    world.join("a", executor)
    world.ask("w_1")
    directory = world.directory / "a"
    wait_until(lambda: any(c.running for c in read_status(directory).copies))
    status = read_status(directory)
    assert (status.running, status.project) == (True, world.server.url)
    assert status.host_id > 0
    assert (status.copies[0].result, status.copies[0].app) == ("w_1_0", "pure")
    world.leave()
    assert read_status(directory).copies[0].running is False


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
    assert len(world.engine.status("w_1").copies) == 1


@pytest.mark.parametrize("shift", [-3e9, -86_400.0, 60.0])
def test_clock_that_was_set_stops_nothing(world, shift):
    executor = EchoExecutor()
    world.join("a", executor, clock=lambda: time.time() + shift)
    world.ask("w_1", "w_2")
    assert world.wait("w_1", "w_2") == [OutcomeKind.CANONICAL] * 2


def test_longer_deadline_of_a_known_copy_counts(tmp_path):
    ledger = Ledger(tmp_path, "http://x/")
    copy = CopyRecord("w_1_0", "w_1", "pure", 10, (), "up", "http://x/up", 1000)
    ledger.add(copy)
    ledger.add(msgspec.structs.replace(copy, deadline=20))
    assert ledger.find("w_1_0").deadline == 20
    ledger.close()


# Keeps something in its slot and hangs; where it finds that again it finishes.
TWICE = """#!/bin/sh
[ -e kept ] || { echo $$ > kept; exec sleep 600; }
name=$(sed -n 's:.*<result_name>\\(.*\\)</result_name>.*:\\1:p' init_data.xml)
printf '{"format":"stoilo-result/1","result":"%s","workunit":"w_1",' "$name" > result
printf '"disposition":"ran","frame_bytes":5}\\ntwice' >> result
printf 0 > boinc_finish_called
"""


def test_killed_volunteer_starts_its_task_in_the_same_slot(world, tmp_path, wait_until):
    launcher = tmp_path / "launcher"
    launcher.write_text(TWICE)
    launcher.chmod(0o755)
    (tmp_path / "stoilo-verifier.tar").write_bytes(b"archive")
    (tmp_path / "key").write_text(world.key("a"))
    state = tmp_path / "state"
    words = ["--project", world.server.url, "--key", f"@{tmp_path / 'key'}"]
    words += ["--state", str(state), "--launcher", str(launcher)]
    command = [sys.executable, "-m", "stoilo.executor.volunteer", *words]
    world.ask("w_1")
    first = subprocess.Popen(command)
    kept = state / "slots" / "0" / "kept"
    wait_until(lambda: kept.exists() and kept.read_text())
    first.kill()
    first.wait()
    wait_until(lambda: not is_running(int(kept.read_text())))
    second = subprocess.Popen(command)
    try:
        assert world.wait("w_1") == [OutcomeKind.CANONICAL]
    finally:
        second.terminate()
        assert second.wait() == 0
    assert world.outcomes.bodies["w_1"].endswith(b"\ntwice")
    assert len(world.engine.status("w_1").copies) == 1
