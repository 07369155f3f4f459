from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import InternalError, StoiloError
from stoilo.server.engines.stock.entrypoints import write_entry_points
from stoilo.server.engines.stock.handover import Handover
from stoilo.server.engines.stock.judging import Answer
from stoilo.server.engines.stock.messages import (
    REQUEST_BYTES,
    AssimilateCall,
    CheckCall,
    CompareCall,
    parse_call,
)
from stoilo.testing.stocktools.project import make_fake_project

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
            raise InternalError("STO-E003", "the database is away")
        self.heard.append(name or boinc_id)


@pytest.fixture
def fake(tmp_path):
    return make_fake_project(tmp_path / "p")


@pytest.fixture
def oracle(fake):
    made = Oracle()
    handover = Handover(fake.project.socket, made, made, workers=2)
    handover.open()
    yield made
    made.gate.set()
    handover.close()


def start(fake, name, *arguments):
    return subprocess.Popen([f"../bin/{name}", *arguments], cwd=fake.root / "tmp_fake")


def run(fake, name, *arguments):
    return start(fake, name, *arguments).wait(60)


@pytest.mark.parametrize("answer", list(Answer))
def test_script_ends_with_the_engines_answer(fake, oracle, answer):
    oracle.answer = answer
    assert run(fake, "stoilo_validate", LEFT) == answer
    assert run(fake, "stoilo_compare", LEFT, RIGHT) == answer


def test_assimilator_tells_ends_and_failures(fake, oracle):
    assert run(fake, "stoilo_assimilate", "17", LEFT) == 0
    assert run(fake, "stoilo_assimilate", "--error", "8", "t_1", "18", "0") == 0
    assert oracle.heard == [17, "t_1"]


def test_assimilator_waits_until_the_end_is_taken(fake, oracle):
    oracle.trouble = 1
    assert run(fake, "stoilo_assimilate", "17", LEFT) == 0
    assert oracle.heard == [17]


def test_slow_answer_holds_nobody_else_up(fake, oracle):
    oracle.gate.clear()
    slow = start(fake, "stoilo_validate", "/u/1/slow_1_0_r1_0")
    assert run(fake, "stoilo_validate", LEFT) == 0
    assert slow.poll() is None
    oracle.gate.set()
    assert slow.wait(60) == 0


def test_scripts_wait_for_an_engine_that_is_away(fake):
    waiting = start(fake, "stoilo_assimilate", "17", LEFT)
    oracle = Oracle()
    handover = Handover(fake.project.socket, oracle, oracle)
    handover.open()
    assert waiting.wait(60) == 0
    handover.close()
    assert oracle.heard == [17]


@pytest.mark.parametrize(
    ("name", "status"), [("stoilo_assimilate", 1), ("stoilo_validate", 3)]
)
def test_project_that_is_stopped_lets_go_and_nothing_is_taken(fake, name, status):
    fake.project.stop_file.touch()
    assert run(fake, name, "17" if status == 1 else LEFT) == status


def test_socket_left_by_a_killed_engine_is_replaced(fake):
    with socket.socket(socket.AF_UNIX) as stale:
        folder = os.open(fake.project.own, os.O_RDONLY)
        stale.bind(f"/proc/self/fd/{folder}/validate.sock")
        os.close(folder)
    handover = Handover(fake.project.socket, Oracle(), Oracle())
    handover.open()
    assert fake.project.socket.stat().st_mode & 0o777 == 0o660
    handover.close()
    assert not fake.project.socket.exists()


def test_socket_in_a_deep_folder_is_reached(tmp_path):
    deep = tmp_path.joinpath(*["a-long-name-of-a-folder"] * 6)
    fake = make_fake_project(deep)
    handover = Handover(fake.project.socket, Oracle(), Oracle())
    handover.open()
    assert run(fake, "stoilo_validate", LEFT) == 0
    handover.close()


@pytest.mark.parametrize("data", [b"", b"x" * (REQUEST_BYTES + 10), b"\xff\0\1"])
def test_strangers_words_are_answered_and_change_nothing(fake, oracle, data):
    with socket.socket(socket.AF_UNIX) as client:
        folder = os.open(fake.project.own, os.O_RDONLY)
        client.connect(f"/proc/self/fd/{folder}/validate.sock")
        os.close(folder)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(8) == b"3"
    assert oracle.heard == []


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_request_is_a_call_or_our_error(data):
    for name in (b"", b"stoilo_validate\0", b"stoilo_assimilate\0--error\0"):
        try:
            found = parse_call(name + data)
        except StoiloError as error:
            assert error.code == "STO-B003"
        else:
            assert isinstance(found, CheckCall | CompareCall | AssimilateCall)


def test_ids_and_run_times_beside_the_files_are_no_matter():
    words = ["stoilo_compare", LEFT, "7", "1.5", RIGHT, "8"]
    call = parse_call("\0".join(words).encode())
    assert (call.left.result, call.right.result) == ("t_1_0", "t_1_1")


def test_scripts_run_bare_and_are_installed_whole(fake):
    for path in write_entry_points(fake.project):
        assert path.read_text().splitlines()[0].endswith(" -IS")
        assert os.access(path, os.X_OK)
    assert not list(Path(fake.root / "bin").glob("*.part"))
