"""Three-phase start between processes: whoever is killed, in whatever phase."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoilo.core import frames
from stoilo.core.digests import content_digest
from stoilo.core.errors import UnreachableError
from stoilo.learn.coordinator.gang import Cancel, CanCommit, Said
from stoilo.learn.coordinator.meeting import Meeting
from stoilo.learn.store.place import read_place
from stoilo.learn.store.values import decode, encode

PROGRAMS = Path(__file__).parent / "programs"
LEASE_S = 1.5
INPUTS = {content_digest(b"data"): b"data"}
PHASES = [
    pytest.param(phase, marks=() if phase == "pre_commit" else pytest.mark.slow)
    for phase in ("can_commit", "pre_commit", "do_commit", "started")
]


class Process:
    """A program whose lines are read."""

    def __init__(self, program, *words):
        command = [sys.executable, str(PROGRAMS / program), *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def line(self):
        return self.process.stdout.readline().strip()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Members:
    """Two members in processes of their own."""

    def __init__(self, folder, most_lease_s):
        self.folders = {name: folder / name for name in ("a", "b")}
        self.processes = {
            n: Process("member.py", f, most_lease_s) for n, f in self.folders.items()
        }
        for process in self.processes.values():
            json.loads(process.line())

    @property
    def files(self):
        return {n: folder / "connection.json" for n, folder in self.folders.items()}

    @property
    def places(self):
        return {name: read_place(path) for name, path in self.files.items()}

    def state(self, name):
        """Ask whether it can be reserved; it is let go again."""
        with self.places[name].connect(5.0) as stream:
            return say(stream, CanCommit(f"probe {time.time()}", 0.1)).state

    def close(self):
        for process in self.processes.values():
            process.kill()


def say(stream, message):
    frames.send_frame(stream, encode(message), most=1 << 20, code="STO-T038", header=8)
    body = frames.receive_frame(stream, most=1 << 20, code="STO-T038", header=8)
    said = decode(body, Said)
    frames.send_frame(
        stream, encode(Cancel(message.group)), most=1 << 20, code="STO-T038", header=8
    )
    frames.receive_frame(stream, most=1 << 20, code="STO-T038", header=8)
    return said


@pytest.fixture
def members(tmp_path):
    found = Members(tmp_path, 60.0)
    yield found
    found.close()


def test_group_starts_with_its_inputs_stays_beyond_a_lease_and_lets_go(members):
    with Meeting(members.places, INPUTS, lease_s=LEASE_S) as meeting:
        told = [json.loads(one.line()) for one in members.processes.values()]
        time.sleep(2 * LEASE_S)
        assert meeting.lost == {}
        assert [members.state(name) for name in "ab"] == ["busy", "busy"]
    assert {tuple(ready) for _, ready in told} == {("a", "b")}
    for folder in members.folders.values():
        assert [p.read_bytes() for p in (folder / "inputs").iterdir()] == [b"data"]
    assert [members.state(name) for name in "ab"] == ["promised", "promised"]


def test_busy_member_is_named_and_the_other_is_free(members):
    with (
        Meeting({"b": members.places["b"]}, {}, lease_s=LEASE_S),
        pytest.raises(UnreachableError, match="b is busy"),
        Meeting(members.places, INPUTS, lease_s=LEASE_S),
    ):
        pass
    assert members.state("a") == "promised"


@pytest.mark.parametrize("phase", PHASES)
def test_killed_coordinator_leaves_nobody_reserved(members, phase):
    words = [phase, LEASE_S, *members.files.values()]
    coordinator = Process("starting.py", *words)
    while coordinator.line() != phase:
        pass
    time.sleep(0.2)  # what the phase begins with is on its way
    before = [members.state(name) for name in "ab"]
    coordinator.kill()
    time.sleep(LEASE_S + 0.5)
    assert before == ["busy", "busy"]
    assert [members.state(name) for name in "ab"] == ["promised", "promised"]


@pytest.mark.parametrize("phase", PHASES)
def test_killed_member_is_named_and_the_other_is_free(members, phase):
    def watch(now):
        if now == phase:
            members.processes["b"].kill()

    def meet():
        with Meeting(members.places, INPUTS, lease_s=LEASE_S, watch=watch) as meeting:
            end = time.monotonic() + 3 * LEASE_S
            while not meeting.lost and time.monotonic() < end:
                time.sleep(0.05)
            raise UnreachableError("STO-T037", str(meeting.lost))

    with pytest.raises(UnreachableError, match=r"b.*is gone"):
        meet()
    time.sleep(0.3)
    assert members.state("a") == "promised"


def test_without_leases_a_killed_coordinator_leaves_members_reserved(tmp_path):
    members = Members(tmp_path, 1e9)
    coordinator = Process("starting.py", "pre_commit", 1e9, *members.files.values())
    while coordinator.line() != "pre_commit":
        pass
    time.sleep(0.2)
    coordinator.kill()
    time.sleep(LEASE_S + 0.5)
    assert [members.state(name) for name in "ab"] == ["busy", "busy"]
    members.close()
