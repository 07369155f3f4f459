"""A task under its client: suspend, resume, quit, abort, checkpoints, a client that dies."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.boinc_session import (
    MMAP_FILE,
    Control,
    Session,
    open_segment,
)
from stoilo.executor.verifier.boinc_slot import SlotInfo
from stoilo.executor.verifier.checkpoints import (
    CHECKPOINT_FILE,
    Checkpoint,
    render_checkpoint,
)
from stoilo.executor.verifier.trust import installed_release, render_built
from stoilo.flavors.manifest import find_flavor
from stoilo.sandbox.process.exchange import Exchange
from stoilo.signer.release_pack import pack_release, read_release
from tests.support.boincslot import (
    FakeClient,
    VerifierProcess,
    describe_client,
    is_jailed,
    is_running,
    state_of,
    wait_for,
)
from tests.support.descendants import descendants
from tests.support.gate import GateBench
from tests.support.slots import BoincData, built_for

SPINS = b"def task(kwargs):\n    while True:\n        pass\n"
WALKS = b"""
import random
def task(kwargs, state=None):
    done, total = state or (0, 0.0)
    while done < kwargs["steps"]:
        total += random.random()
        done += 1
        for _ in range(kwargs["work"]):
            pass
        yield done, total
    return total
"""
LIMITS = RunLimits(cpu_s=100, wall_s=100)
INFO = SlotInfo("pure", "w", "w_0")


def exchange_of_nothing():
    return Exchange(b"", LIMITS, 60.0)


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gate") / "root"
    return GateBench(directory, now=int(time.time()), installed=installed_release())


@pytest.fixture
def built(gate):
    return built_for(gate.root.root_file.read_bytes())


@pytest.fixture
def data(tmp_path):
    return BoincData(tmp_path / "boinc")


def files_of(gate, source=SPINS, limits=LIMITS, **arguments):
    encoded = skeleton.encode(arguments)
    statement = gate.statement(
        entry="task",
        task_module=content_digest(source),
        arguments=content_digest(encoded),
        blobs=(),
        flavor=find_flavor("pure").digest,
        limits=limits,
    )
    admitted = gate.admit(statement)
    return [
        ("admission", admitted.envelope),
        ("proof", admitted.proof),
        ("revocations", gate.revocations),
        ("task_module", source),
        ("arguments", encoded),
        ("release", pack_release(read_release(gate.root.directory))),
    ]


def value_of(data):
    frame = skeleton.decode(data.result().frame)
    return skeleton.decode(frame["value"])


@pytest.fixture
def spinning(data, gate, built):
    slot = data.slot(files_of(gate), client=describe_client(os.getpid()))
    with FakeClient(slot) as client, VerifierProcess(slot, built) as process:
        yield client, process, process.child()


def test_suspended_child_stops_and_goes_on(spinning):
    client, _, child = spinning
    client.send(Control.SUSPEND)
    wait_for(lambda: state_of(child) == "T")
    client.send(Control.RESUME)
    wait_for(lambda: state_of(child) == "R")
    told = wait_for(lambda: client.statuses)[-1].current_cpu_time
    client.wait_for_status(lambda status: status.current_cpu_time > told)


def test_suspended_task_says_nothing_and_still_obeys(spinning):
    client, process, child = spinning
    client.send(Control.SUSPEND)
    wait_for(lambda: state_of(child) == "T")
    client.send(Control.QUIT)
    assert process.wait() == 0
    wait_for(
        lambda: not is_running(child)
    )  # it dies of its parent's death, not before it


@pytest.mark.parametrize(
    ("wanted", "code"), [(Control.QUIT, 0), (Control.ABORT, 194)], ids=["quit", "abort"]
)
def test_ending_by_the_client_leaves_no_result(spinning, data, wanted, code):
    client, process, child = spinning
    below = process.descendants()
    client.send(wanted)
    assert process.wait() == code
    assert child in below
    wait_for(lambda: not any(map(is_running, below)))
    left = {path.name for path in (data.directory / "slots" / "0").iterdir()}
    assert not left & {"boinc_finish_called", "boinc_temporary_exit"}
    assert not list(data.project.glob("*_out"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_polite_signal_is_a_quit(spinning, number):
    _, process, child = spinning
    process.process.send_signal(number)
    assert process.wait() == 0
    wait_for(
        lambda: not is_running(child)
    )  # it dies of its parent's death, not before it


@pytest.mark.parametrize("suspended", [False, True])
def test_killed_executor_takes_its_child_along(spinning, suspended):
    client, process, child = spinning
    if suspended:
        client.send(Control.SUSPEND)
        wait_for(lambda: state_of(child) == "T")
    below = process.kill()
    assert child in below
    wait_for(lambda: not any(map(is_running, below)))


@pytest.mark.parametrize("started", [1, 2])
def test_killed_while_it_prepares_it_leaves_nothing(data, gate, built, started):
    slot = data.slot(files_of(gate))
    with VerifierProcess(slot, built) as process:
        wait_for(lambda: len(process.descendants()) >= started)
        below = process.kill()
        wait_for(lambda: not any(map(is_running, below)))


def test_client_that_was_the_parent_and_died_ends_the_task(data, gate, built):
    starter = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from stoilo.executor.verifier.trust import parse_built\n"
        "from tests.support.boincslot import VerifierProcess, describe_client\n"
        "slot = Path(sys.argv[1]); file = slot / 'init_data.xml'\n"
        "text = file.read_text().replace('@CLIENT@', describe_client(os.getpid()))\n"
        "file.write_text(text)\n"
        "made = VerifierProcess(slot, parse_built(Path(sys.argv[2]).read_bytes()))\n"
        "print(made.process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    slot = data.slot(files_of(gate), client="@CLIENT@")
    file = data.directory / "b.json"
    file.write_bytes(render_built(built))
    with FakeClient(slot):
        parent = subprocess.Popen(
            [sys.executable, "-c", starter, str(slot), str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        pid = int(parent.stdout.readline())
        wait_for(lambda: any(map(is_jailed, descendants(pid))))
        below = descendants(pid)
        parent.kill()
        parent.communicate()
        wait_for(lambda: not any(map(is_running, {pid, *below})))


def test_last_status_tells_of_the_whole_task(data, gate, built):
    slot = data.slot(files_of(gate, WALKS, steps=1, work=10_000_000))
    with FakeClient(slot) as client:
        with VerifierProcess(slot, built) as process:
            assert process.wait() == 0
        last = client.wait_for_status(lambda one: one.fraction_done == 1.0)
    assert last.current_cpu_time > 0.1


def test_task_without_a_client_runs_to_its_end(data, gate, built):
    slot = data.slot(files_of(gate, WALKS, steps=3, work=1))
    with VerifierProcess(slot, built) as process:
        assert process.wait() == 0
    assert 0 < value_of(data) < 3


def test_unusable_segment_puts_the_task_off(data, gate, built):
    slot = data.slot(files_of(gate))
    (slot / "boinc_mmap_file").symlink_to("elsewhere")
    with VerifierProcess(slot, built) as process:
        assert process.wait() == 0
    words = (slot / "boinc_temporary_exit").read_text().splitlines()
    assert (words[0], words[1][:8]) == ("300", "STO-F038")


def test_second_verifier_in_the_slot_is_put_off(spinning, data, built):
    del spinning
    slot = data.directory / "slots" / "0"
    with VerifierProcess(slot, built) as second:
        assert second.wait() == 0
    assert "STO-F038" in (slot / "boinc_temporary_exit").read_text()


def test_quit_before_the_task_has_begun_ends_it(data, gate, built):
    slot = data.slot(files_of(gate), client=describe_client(os.getpid()))
    with FakeClient(slot) as client:
        client.send(Control.QUIT)
        with VerifierProcess(slot, built) as process:
            assert process.wait() == 0
    assert not (slot / "boinc_finish_called").exists()


def test_suspended_before_it_has_begun_no_child_starts(data, gate, built):
    slot = data.slot(files_of(gate, WALKS, steps=1, work=1))
    with FakeClient(slot) as client:
        client.send(Control.SUSPEND)
        with VerifierProcess(slot, built) as process:
            wait_for(process.descendants)
            assert not (slot / "boinc_finish_called").exists()
            client.send(Control.RESUME)
            assert process.wait() == 0
    assert (slot / "boinc_finish_called").exists()


@pytest.mark.parametrize("then", [Control.RESUME, Control.QUIT])
def test_child_is_taken_only_when_it_may_run(tmp_path, then):
    with FakeClient(tmp_path) as client:
        client.send(Control.SUSPEND)
        segment = open_segment(tmp_path / MMAP_FILE)
        with Session(INFO, segment) as session, exchange_of_nothing() as exchange:
            taker = threading.Thread(target=session.watch, args=(exchange,))
            taker.start()
            assert taker.is_alive()
            client.send(then)
            taker.join()
            assert exchange.cancelled is (then is Control.QUIT)


def test_busy_main_thread_does_not_keep_the_process(tmp_path):
    left = []
    with FakeClient(tmp_path) as client:
        segment = open_segment(tmp_path / MMAP_FILE)
        with Session(INFO, segment, leave=left.append, patience_s=0.0):
            client.send(Control.ABORT)
            wait_for(lambda: left)
    assert left == [194]


def test_planted_checkpoint_changes_no_answer(data, gate, built):
    slot = data.slot(files_of(gate, WALKS, steps=1, work=1))
    state = skeleton.encode((1, 1e9))
    digest = content_digest(state)
    planted = render_checkpoint(Checkpoint(digest, 1, state), bytes(32))
    (slot / CHECKPOINT_FILE).write_bytes(planted)
    with VerifierProcess(slot, built) as process:
        assert process.wait() == 0
    assert 0 < value_of(data) < 1


def interrupt(slot, built, *, wanted=Control.QUIT):
    """Run a task until it has a checkpoint, then end it; returns the last status."""
    with FakeClient(slot) as client, VerifierProcess(slot, built) as process:
        status = client.wait_for_status(lambda one: one.checkpoint_cpu_time > 0)
        if wanted is None:
            process.kill()
        else:
            client.send(wanted)
            process.wait()
    return status


@pytest.fixture(scope="module")
def calm(tmp_path_factory, gate):
    """The files of a walk, and its answer when nobody interrupts it."""
    files = files_of(gate, WALKS, steps=100, work=2_000_000)
    data = BoincData(tmp_path_factory.mktemp("calm") / "boinc")
    built = built_for(gate.root.root_file.read_bytes())
    with VerifierProcess(data.slot(files), built) as process:
        assert process.wait() == 0
    return files, value_of(data)


@pytest.mark.parametrize("wanted", [Control.QUIT, None], ids=["quit", "killed"])
def test_interrupted_task_gives_the_answer_of_one_that_was_not(
    data, built, calm, wanted
):
    files, answer = calm
    slot = data.slot(files, client=describe_client(os.getpid()))
    status = interrupt(slot, built, wanted=wanted)
    assert not (slot / "boinc_finish_called").exists()
    assert (slot / CHECKPOINT_FILE).stat().st_size > 0
    assert 0 < status.checkpoint_cpu_time <= status.current_cpu_time
    with VerifierProcess(slot, built) as process:
        assert process.wait() == 0
    assert value_of(data) == answer
