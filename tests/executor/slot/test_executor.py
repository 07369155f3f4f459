"""Copies under a launcher: a stand-in that starts the real verifier, and ones that fail."""

import os
import sys
import threading
import time

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.types import RunLimits
from stoilo.executor.slot.executor import SlotExecutor
from stoilo.executor.slot.layout import Program, PutOffError
from stoilo.executor.verifier.installation import OptIn
from stoilo.executor.verifier.trust import installed_release, render_built
from stoilo.executor.verifier.workunit import Disposition, Work, parse_result
from stoilo.executor.volunteer.optin_file import render_opt_in
from stoilo.flavors.manifest import find_flavor
from stoilo.signer.release_pack import pack_release, read_release
from tests.support.boincslot import state_of, wait_for
from tests.support.descendants import descendants
from tests.support.gate import GateBench
from tests.support.slots import built_for

SOURCE = b"def task(kwargs):\n    return kwargs['x'] + 1\n"
# Endless, unless it goes on from a state.
WALKS = b"""
def task(kwargs, state=None):
    done = 0
    while state is None:
        for _ in range(100_000):
            pass
        done += 1
        yield {"done": done, "fraction_done": 0.5}
    return state["done"]
"""
LONG = RunLimits(wall_s=300, cpu_s=300)
SPINS = b"def task(kwargs):\n    while True:\n        pass\n"

STAND_IN = """#!{python}
import os, sys, time
from pathlib import Path
from stoilo.executor.verifier.trust import parse_built
from stoilo.executor.verifier.main import Surroundings, run_verifier
from tests.support.slots import installed_runtimes
built = parse_built(Path({built!r}).read_bytes())
around = Surroundings(built, Path.cwd(), os.environ, runtimes=installed_runtimes)
sys.exit(run_verifier(["--launcher=" + sys.argv[0], *sys.argv[1:]], around))
"""


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gate") / "root"
    return GateBench(directory, now=int(time.time()), installed=installed_release())


@pytest.fixture
def program(tmp_path, gate):
    built = tmp_path / "built.json"
    built.write_bytes(render_built(built_for(gate.root.root_file.read_bytes())))
    return make_program(
        tmp_path, STAND_IN.format(python=sys.executable, built=str(built))
    )


def make_program(directory, text):
    folder = directory / "app"
    folder.mkdir()
    (folder / "launcher").write_text(text)
    (folder / "launcher").chmod(0o755)
    (folder / "stoilo-verifier.tar").write_bytes(b"archive")
    return Program.of(folder / "launcher")


@pytest.fixture
def make(tmp_path):
    made = []

    def start(program, opt_in=OptIn()):  # noqa: B008 - frozen
        executor = SlotExecutor(
            lambda _: program, tmp_path / "state", render_opt_in(opt_in)
        )
        made.append(executor)
        return executor

    (tmp_path / "state").mkdir()
    yield start
    for executor in made:
        executor.close()


def make_work(directory, gate, source=SOURCE, limits=None):
    arguments = skeleton.encode({"x": 41})
    changes = {"limits": limits} if limits else {}
    statement = gate.statement(
        entry="task",
        task_module=content_digest(source),
        arguments=content_digest(arguments),
        blobs=(),
        flavor=find_flavor("pure").digest,
        **changes,
    )
    admitted = gate.admit(statement)
    files = {
        "admission": admitted.envelope,
        "proof": admitted.proof,
        "revocations": gate.revocations,
        "task_module": source,
        "arguments": arguments,
        "release": pack_release(read_release(gate.root.directory)),
    }
    folder = directory / "state" / "project" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    paths = tuple((name, folder / name) for name in files)
    return Work("task-1_1_0", "task-1_1", "pure", paths)


def test_copy_runs_under_the_launcher(tmp_path, gate, program, make):
    result = parse_result(make(program).execute(make_work(tmp_path, gate)))
    assert result.header.disposition is Disposition.RAN
    assert result.header.result == "task-1_1_0"
    assert skeleton.decode(skeleton.decode(result.frame)["value"]) == 42
    assert list((tmp_path / "state" / "slots").iterdir()) == []


def test_opt_in_reaches_the_verifier(tmp_path, gate, program, make):
    executor = make(program, OptIn(require_review=True))
    header = parse_result(executor.execute(make_work(tmp_path, gate))).header
    assert (header.disposition, header.code) == (
        Disposition.NOT_FOR_THIS_HOST,
        "STO-A050",
    )


def test_unwanted_copy_ends_soon_with_all_it_started(
    tmp_path, gate, program, make, wait_until, find_survivors
):
    def zygotes():
        return {
            pid for pid, line in find_survivors(0).items() if " -S -s -P -c " in line
        }

    before, executor = zygotes(), make(program)
    limits = RunLimits(wall_s=60, cpu_s=60)
    work = make_work(tmp_path, gate, SPINS, limits=limits)
    ended = []

    def run():
        try:
            executor.execute(work)
        except InternalError as error:
            ended.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: zygotes() - before)
    executor.cancel(work.result)
    thread.join()
    assert ended == ["STO-S008"]
    wait_until(lambda: not zygotes() - before)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'stoilo-launcher: STO-F052 swapped' >&2; exit 4", "STO-F052"),
        ("exit 0", "it said nothing"),
        ("printf '\\033[2Jx\\n' >&2; exit 1", "\\x1b"),
    ],
)
def test_launcher_without_a_result_says_why(tmp_path, make, text, words):
    executor = make(make_program(tmp_path, f"#!/bin/sh\n{text}\n"))
    with pytest.raises(InternalError) as caught:
        executor.execute(Work("r", "w_1", "pure", ()))
    assert caught.value.code == "STO-F048"
    assert words in caught.value.message


def test_temporary_exit_puts_the_copy_off_and_keeps_its_slot(tmp_path, make):
    text = (
        "echo state > kept; printf '300\\nSTO-X008 disk full\\n' > boinc_temporary_exit"
    )
    executor = make(make_program(tmp_path, f"#!/bin/sh\n{text}\n"))
    with pytest.raises(PutOffError) as caught:
        executor.execute(Work("r", "w_1", "pure", ()))
    assert (caught.value.code, caught.value.delay_s) == ("STO-F048", 300.0)
    assert "STO-X008 disk full" in caught.value.message
    assert (tmp_path / "state" / "slots" / "0" / "kept").exists()


def test_slot_is_its_copys_own_over_restarts_and_goes_with_it(tmp_path, make):
    program = make_program(tmp_path, "#!/bin/sh\necho $0 >> kept\nexit 0\n")
    slots = tmp_path / "state" / "slots"
    for result in ("r_0", "r_1", "r_0"):
        with pytest.raises(InternalError):
            make(program).execute(Work(result, "w_1", "pure", ()))
    assert [(slots / n / "kept").read_text().count("\n") for n in "01"] == [2, 1]
    make(program).keep({"r_1"})
    assert [slot.name for slot in slots.iterdir()] == ["1"]


def start(executor, work):
    """Run a copy in a thread; returns the thread and what came of it."""
    came = []

    def run():
        try:
            came.append(executor.execute(work))
        except InternalError as error:
            came.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, came


def is_under_way(executor, work):
    said = executor.progress().get(work.result)
    return said is not None and said.fraction_done > 0.0


def test_result_that_a_former_start_left_is_taken(tmp_path, make):
    text = "printf done > result; printf 0 > boinc_finish_called; sleep 60"
    executor = make(make_program(tmp_path, f"#!/bin/sh\n{text}\n"))
    slot, work = tmp_path / "state" / "slots" / "0", Work("r", "w", "pure", ())
    thread, came = start(executor, work)
    wait_for((slot / "boinc_finish_called").exists)
    executor.cancel("r")  # it does not listen, and is killed before it has ended
    thread.join()
    assert came == ["STO-S008"]
    assert make(executor._programs).execute(work) == b"done"
    assert not slot.exists()


def test_stopped_run_goes_on_from_its_state(tmp_path, gate, program, make):
    work = make_work(tmp_path, gate, WALKS, limits=LONG)
    executor = make(program)
    thread, came = start(executor, work)
    wait_for(lambda: is_under_way(executor, work))
    executor.close()
    thread.join()
    assert came == ["STO-S008"]
    slot = tmp_path / "state" / "slots" / "0"
    assert (slot / "stoilo_checkpoint").exists()
    result = parse_result(make(program).execute(work))
    assert skeleton.decode(skeleton.decode(result.frame)["value"]) > 0
    assert not slot.exists()


def test_suspended_run_stands_still_until_it_is_resumed(tmp_path, gate, program, make):
    def stands():
        return "T" in {state_of(pid) for pid in descendants(os.getpid())}

    work = make_work(tmp_path, gate, WALKS, limits=LONG)
    executor = make(program)
    thread, came = start(executor, work)
    wait_for(lambda: is_under_way(executor, work))
    executor.suspend()
    wait_for(stands)
    executor.resume()
    wait_for(lambda: not stands())
    assert thread.is_alive()
    executor.cancel(work.result)
    thread.join()
    assert came == ["STO-S008"]


def test_launcher_gets_a_clean_environment_and_an_own_slot(tmp_path, make, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("SECRET", "x")
    text = "env > result; pwd >> result; printf 0 > boinc_finish_called"
    executor = make(make_program(tmp_path, f"#!/bin/sh\n{text}\n"))
    said = executor.execute(Work("r", "w_1", "pure", ())).decode()
    assert "SECRET" not in said
    assert said.endswith("/state/slots/0\n")


def test_program_without_its_archive_is_named(tmp_path):
    (tmp_path / "launcher").write_bytes(b"")
    with pytest.raises(UsageError) as caught:
        Program.of(tmp_path / "launcher")
    assert caught.value.code == "STO-U004"
