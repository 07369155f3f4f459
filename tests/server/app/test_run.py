"""`stoilo up` as people run it: real processes, real log, signer, gate, jail, volunteers."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from stoilo.audit.format.facts import (
    OperatorAct,
    OperatorRecord,
    OutcomeRecord,
    WorkunitRecord,
)
from stoilo.audit.format.records import parse_record
from stoilo.audit.read.reader import open_log
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.listen import listen
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.testing.deployment import Deployment

DOUBLE = b"def task(kwargs):\n    print('hi')\n    return kwargs['x'] * 2\n"


class Researcher:
    """A bare client of the wire contract."""

    def __init__(self, connection: Path) -> None:
        page = json.loads(connection.read_text())
        credentials = grpc.ssl_channel_credentials(page["ca"].encode())
        self.channel = grpc.secure_channel(page["grpc"], credentials)
        self.stub = tasks_pb2_grpc.TaskServiceStub(self.channel)
        self.metadata = [("authorization", f"Bearer {page['token']}")]

    def submit(self, key: str, x: object, **fields: Any) -> str:
        request = pb.CreateTaskRequest(
            idempotency_key=key,
            **(
                {"task_module": DOUBLE, "entry": "task", "arguments": encode({"x": x})}
                | fields
            ),
        )
        return self.stub.CreateTask(request, metadata=self.metadata, timeout=60).task_id

    def poll(self, task_id: str) -> Any:
        request = pb.PollTaskRequest(task_id=task_id)
        return self.stub.PollTask(request, metadata=self.metadata, timeout=60)

    def wait(self, task_id: str, seconds: float = 120.0) -> Any:
        deadline = time.monotonic() + seconds
        while (answer := self.poll(task_id)).state in {"admitting", "running"}:
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)
        return answer


@contextmanager
def researcher(deployment: Deployment) -> Iterator[Researcher]:
    assert deployment.line is not None
    one = Researcher(Path(deployment.line.connection))
    yield one
    one.channel.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A server with two volunteers, which stops cleanly at the end."""
    deployment = Deployment(tmp_path_factory.mktemp("up") / "data", volunteers=2)
    with deployment:
        yield deployment
        assert deployment.stop() == 0


def test_real_task_comes_back(running: Deployment) -> None:
    with researcher(running) as one:
        answer = one.wait(one.submit("k", 21))
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)
    assert answer.output == "hi\n"
    assert answer.logged


def test_stop_ends_the_streams_of_those_who_wait(tmp_path: Path) -> None:
    with Deployment(tmp_path / "data") as server, researcher(server) as one:
        asked = pb.WaitTasksRequest(task_ids=[one.submit("k", 1)])
        stream = one.stub.WaitTasks(asked, metadata=one.metadata, timeout=60)
        time.sleep(0.5)  # it has arrived
        assert server.stop() == 0
        assert list(stream) == []  # by itself: one that is cut off raises


def test_connection_and_data_are_the_operators_alone(running: Deployment) -> None:
    connection = running.data / "connection.json"
    assert stat.S_IMODE(connection.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.data.stat().st_mode) == 0o700


def test_second_server_on_a_directory_exits_1(running: Deployment) -> None:
    second = subprocess.run(
        running.command(), capture_output=True, text=True, check=False
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert "STO-R070" in second.stderr


def test_no_secret_is_in_any_process_list(running: Deployment) -> None:
    assert running.line is not None
    key = (running.data / "volunteers" / "1" / "key").read_text().strip()
    lines = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                lines += (entry / "cmdline").read_bytes()
    assert str(running.data).encode() in lines
    assert key.encode() not in lines
    assert running.line.token.encode() not in lines


def test_token_and_task_survive_kill_9_and_restart(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "data")
    first = deployment.start()
    with researcher(deployment) as one:
        tasks = [one.submit(f"k{number}", number) for number in range(5)]
    deployment.kill()
    deployment.volunteers = 2
    second = deployment.start()
    assert (first.token, first.grpc) == (second.token, second.grpc)
    with researcher(deployment) as one:
        assert one.submit("k0", 0) == tasks[0]
        values = [decode(one.wait(task_id).value) for task_id in tasks]
    deployment.stop()
    assert values == [0, 2, 4, 6, 8]


@pytest.mark.slow
def test_local_volunteers_follow_the_server_to_another_port(tmp_path: Path) -> None:
    first = Deployment(tmp_path / "data", volunteers=2)
    with first, researcher(first) as one:
        one.wait(one.submit("k0", 0))
    with Deployment(tmp_path / "data", volunteers=2) as second:
        assert second.http != first.http
        with researcher(second) as one:
            assert decode(one.wait(one.submit("k1", 4)).value) == 8


def test_log_that_lost_a_leaf_refuses_to_start(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "data")
    deployment.start()
    with researcher(deployment) as one:
        task_id = one.submit("k", 1)
        while not one.poll(task_id).logged:
            time.sleep(0.05)
    deployment.stop()
    for page in (tmp_path / "data" / "audit").glob("*.sqlite*"):
        page.unlink()
    again = subprocess.run(
        deployment.command(), capture_output=True, text=True, check=False, timeout=200
    )
    assert again.returncode == 4
    assert "STO-L04" in again.stderr


def test_address_beyond_loopback_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "stoilo", "up", "--data", str(tmp_path / "d")]
    done = subprocess.run(
        [*command, "--http", "0.0.0.0:0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "STO-R090" in done.stderr
    assert not (tmp_path / "d").exists()


ROUNDS = 7  # kills of everything


def child_pids(parent: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                found.add(int(entry.name))
    return found


@pytest.mark.slow
def test_killed_children_are_replaced_and_tasks_go_on(tmp_path: Path) -> None:
    with (
        Deployment(tmp_path / "data", volunteers=2) as deployment,
        researcher(deployment) as one,
    ):
        assert deployment.process is not None
        for number in range(4):
            for pid in child_pids(deployment.process.pid):
                os.kill(pid, signal.SIGKILL)
            answer = one.wait(one.submit(f"k{number}", number))
            assert decode(answer.value) == 2 * number


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_9_at_random_moments_loses_no_task_and_repeats_no_outcome(
    tmp_path: Path,
) -> None:
    draw = random.Random(20260101)
    deployment = Deployment(tmp_path / "data", volunteers=2)
    acknowledged: dict[str, str] = {}
    for number in range(ROUNDS):
        deployment.start()
        with researcher(deployment) as one:
            deadline = time.monotonic() + draw.uniform(0.0, 1.5)
            while time.monotonic() < deadline:
                key = f"k{number}-{len(acknowledged)}"
                acknowledged[key] = one.submit(key, len(acknowledged))
        deployment.kill()
    deployment.start()
    with researcher(deployment) as one:
        for index, (key, task_id) in enumerate(acknowledged.items()):
            answer = one.wait(task_id, 300)
            assert (answer.state, decode(answer.value)) == ("succeeded", 2 * index)
            assert one.submit(key, index) == task_id
    deployment.stop()
    count_leaves(tmp_path / "data", len(acknowledged))
    count_events(tmp_path / "data", len(acknowledged), starts=ROUNDS + 1)


def count_leaves(data: Path, tasks: int) -> None:
    """Count from outside, in the published log, as an auditor would."""
    verified = subprocess.run(
        [sys.executable, "-m", "stoilo", "audit", "verify", str(data)], check=False
    )
    assert verified.returncode == 0
    with sqlite3.connect(data / "server.sqlite") as database:
        outcomes = database.execute("SELECT COUNT(*) FROM outcome").fetchone()[0]
        admissions = database.execute(
            "SELECT COUNT(DISTINCT log_index) FROM attempt WHERE log_index IS NOT NULL"
        ).fetchone()[0]
    database.close()
    assert (outcomes, admissions) == (tasks, tasks)


def count_events(data: Path, tasks: int, starts: int) -> None:
    """Every event is one leaf with its record, whatever was killed meanwhile."""
    log = open_log(data)
    texts = [
        text
        for start, leaves in log.bundles()
        for text in log.source.records_of(start // 256, leaves)
    ]
    records = [parse_record(text) for text in texts if text is not None]
    explained = [one.admission for one in records if isinstance(one, WorkunitRecord)]
    assert sorted(explained) == [place for place, text in enumerate(texts) if not text]
    outcomes = [one.task for one in records if isinstance(one, OutcomeRecord)]
    assert len(set(outcomes)) == len(outcomes) == tasks
    acts = [one.act for one in records if isinstance(one, OperatorRecord)]
    assert acts.count(OperatorAct.SERVER_STARTED) == starts
    assert acts.count(OperatorAct.SERVER_STOPPED) == 1


def test_replies_do_not_wait_for_delayed_acknowledgements() -> None:
    with listen("127.0.0.1:0") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
