from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, StoiloError
from stoilo.server.engines.stock.script_server import (
    REQUEST_BYTES,
    TALK_S,
    Call,
    ScriptServer,
    parse_call,
    read_request,
)
from stoilo.server.engines.stock.validator import Answer
from tests.support.stocktools.project import make_fake_project, write_entry_points

LEFT, RIGHT = "/u/1/t_1_0_r12_0", "/u/2/t_1_1_r34_0"


class Oracle:
    """Says what it is told to, when it is let."""

    def __init__(self):
        self.answer = Answer.YES
        self.gate = threading.Event()
        self.gate.set()
        self.trouble = 0
        self.heard = []

    def check(self, output):
        if output.result == "slow_1_0":
            assert self.gate.wait(60)
        return self.answer

    def compare(self, left, right):
        return Answer.NO if left == right else self.answer

    def hear(self, *, name="", boinc_id=0):
        if self.trouble:
            self.trouble -= 1
            raise InternalError("STO-R030", "the database is away")
        self.heard.append(name or boinc_id)


@pytest.fixture
def fake(tmp_path):
    return make_fake_project(tmp_path / "p")


@pytest.fixture
def oracle(fake):
    made = Oracle()
    handover = ScriptServer(fake.project.socket, made, made, workers=2)
    yield made
    made.gate.set()
    handover.close()


@pytest.fixture
def start(fake):
    """Start a script as BOINC does; those that still run are ended with the test."""
    begun = []

    def begin(name, *arguments, project=fake):
        words = [f"../bin/{name}", *arguments]
        begun.append(subprocess.Popen(words, cwd=project.root / "tmp_fake"))
        return begun[-1]

    yield begin
    for script in begun:
        script.kill()
        script.wait()


@pytest.fixture
def run(start):
    return lambda name, *arguments: start(name, *arguments).wait(60)


def say(fake, data):
    """Send bytes to the socket; returns the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        folder = os.open(fake.project.own, os.O_RDONLY)
        client.connect(f"/proc/self/fd/{folder}/validate.sock")
        os.close(folder)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return client.recv(8)


@pytest.mark.parametrize("answer", list(Answer))
def test_script_ends_with_the_engines_answer(oracle, answer, run):
    oracle.answer = answer
    assert run("stoilo_validate", LEFT) == answer
    assert run("stoilo_compare", LEFT, RIGHT) == answer


def test_assimilator_tells_ends_and_failures(oracle, run):
    assert run("stoilo_assimilate", "17", LEFT) == 0
    assert run("stoilo_assimilate", "--error", "8", "t_1", "18", "0") == 0
    assert oracle.heard == [17, "t_1"]


def test_assimilator_waits_until_the_end_is_taken(oracle, run):
    oracle.trouble = 1
    assert run("stoilo_assimilate", "17", LEFT) == 0
    assert oracle.heard == [17]


def test_slow_answer_holds_nobody_else_up(oracle, run, start):
    oracle.gate.clear()
    slow = start("stoilo_validate", "/u/1/slow_1_0_r1_0")
    assert run("stoilo_validate", LEFT) == 0
    assert slow.poll() is None
    oracle.gate.set()
    assert slow.wait(60) == 0


def test_scripts_wait_for_an_engine_that_is_away(fake, start):
    waiting = start("stoilo_assimilate", "17", LEFT)
    oracle = Oracle()
    handover = ScriptServer(fake.project.socket, oracle, oracle)
    assert waiting.wait(60) == 0
    handover.close()
    assert oracle.heard == [17]


@pytest.mark.parametrize(
    ("name", "status"), [("stoilo_assimilate", 1), ("stoilo_validate", 3)]
)
def test_project_that_is_stopped_lets_go_and_nothing_is_taken(fake, name, status, run):
    (fake.root / "stop_daemons").touch()
    assert run(name, "17" if status == 1 else LEFT) == status


def test_socket_left_by_a_killed_engine_is_replaced(fake):
    with socket.socket(socket.AF_UNIX) as stale:
        folder = os.open(fake.project.own, os.O_RDONLY)
        stale.bind(f"/proc/self/fd/{folder}/validate.sock")
        os.close(folder)
    handover = ScriptServer(fake.project.socket, Oracle(), Oracle())
    assert fake.project.socket.stat().st_mode & 0o777 == 0o660
    handover.close()
    assert not fake.project.socket.exists()


def test_socket_in_a_deep_folder_is_reached(tmp_path, start):
    deep = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 6)
    deep_one = make_fake_project(deep)
    handover = ScriptServer(deep_one.project.socket, Oracle(), Oracle())
    assert start("stoilo_validate", LEFT, project=deep_one).wait(60) == 0
    handover.close()


@pytest.mark.parametrize("data", [b"", b"x" * (REQUEST_BYTES + 10), b"\xff\0\1"])
def test_strangers_words_are_answered_and_change_nothing(fake, oracle, data):
    assert say(fake, data) == b"3"
    assert oracle.heard == []


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\0--error",
        b"\0--error\0008",
        b"\0--error\0008\0caf\xc3\xa9\00018\0000",
        b"\0x y",
        b"\0" + b"9" * 19,
    ],
)
def test_assimilator_is_let_go_whatever_it_says(fake, oracle, words):
    """Any other answer would end BOINC's daemon, at the same row each time."""
    assert say(fake, b"stoilo_assimilate" + words) == b"0"
    assert oracle.heard == []


@pytest.mark.parametrize(
    ("words", "heard"),
    [
        (["--error", "8", "t_1", "18", "0"], "t_1"),
        (["--error", "8", "18"], 18),
        (["--error", "8", "n" * 101, "18", "0"], 18),
        (["--error", "8", "their+own", "18", "0"], 18),
        (["18", LEFT], 18),
        (["18"], 18),
    ],
)
def test_ends_are_understood_as_every_version_of_boinc_puts_them(words, heard):
    call = parse_call("\0".join(["stoilo_assimilate", *words]).encode())
    assert heard == (call.name or call.boinc_id)


def test_assimilator_ends_when_its_project_is_gone(fake, start):
    with socket.socket(socket.AF_UNIX) as engine:
        folder = os.open(fake.project.own, os.O_RDONLY)
        engine.bind(f"/proc/self/fd/{folder}/validate.sock")
        os.close(folder)
        engine.listen()
        engine.settimeout(60)
        waiting = start("stoilo_assimilate", "17", LEFT)
        engine.accept()[0].close()  # it runs, and has no answer
        shutil.rmtree(fake.root)
    assert waiting.wait(60) == 1


class Trickle:
    """A script that says one byte a second; `now` is its clock."""

    def __init__(self):
        self.now = 0.0
        self.patience = []

    def settimeout(self, seconds):
        self.patience.append(seconds)

    def recv(self, _):
        self.now += 1.0
        return b"x"


def test_call_that_trickles_in_holds_its_worker_no_longer_than_one_that_stalls():
    script = Trickle()
    with pytest.raises(TimeoutError):
        read_request(script, lambda: script.now)
    assert script.now == TALK_S
    assert script.patience == sorted(script.patience, reverse=True)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_request_is_a_call_or_our_error(data):
    for name in (b"", b"stoilo_validate\0", b"stoilo_assimilate\0--error\0"):
        try:
            found = parse_call(name + data)
        except StoiloError as error:
            assert error.code == "STO-B003"
        else:
            assert isinstance(found, Call)


def test_ids_and_run_times_beside_the_files_are_no_matter():
    words = ["stoilo_compare", LEFT, "7", "1.5", RIGHT, "8"]
    left, right = parse_call("\0".join(words).encode()).outputs
    assert (left.result, right.result) == ("t_1_0", "t_1_1")


def test_scripts_run_bare_and_are_installed_whole(fake):
    for path in write_entry_points(fake.project):
        assert path.read_text().splitlines()[0].endswith(" -IS")
        assert os.access(path, os.X_OK)
    assert not list(Path(fake.root / "bin").glob("*.part"))
