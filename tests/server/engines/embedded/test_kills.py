"""kill -9 of the project while volunteers work; everything counted from outside."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import time

import pytest

from stoilo.core.types import Redundancy
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.scheduler import Settings
from stoilo.executor.volunteer.transfer import Transfer
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from tests.support.engine import EchoExecutor, make_spec

# The project as a process of its own. Its assimilator writes each outcome durably to a
# file made with O_EXCL, then a line to a journal: a second, different outcome would show.
PROJECT = """
import os, sys, time
from pathlib import Path
from stoilo.server.engines.embedded.engine import EmbeddedEngine, EngineOptions
from stoilo.server.engines.embedded.scheduling.dispatch import Pace
from tests.support.engine import BodyValidation, ProjectServer
directory, port = Path(sys.argv[1]), int(sys.argv[2])

class Journal:
    def assimilate(self, outcome):
        name = directory / "outcomes" / outcome.workunit
        body = outcome.canonical.path.read_bytes() if outcome.canonical else b""
        data = f"{outcome.kind.value} {outcome.canonical.name}\\n".encode() + body
        if name.exists():
            assert name.read_bytes() == data, "another outcome"
            return
        part = name.with_suffix(".part")
        part.write_bytes(data)
        os.link(part, name)

engine = EmbeddedEngine(
    directory / "engine",
    database_url=sys.argv[3],
    options=EngineOptions(idle_s=0.02, pace=Pace(next_rpc_delay_s=0.05)),
)
with ProjectServer(engine, port=port):
    engine.start(BodyValidation(), Journal())
    time.sleep(600)
"""
CHEATED = Redundancy(max_error=3, max_total=4, max_success=4)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def start_volunteers(directory, url, keys):
    answers = [lambda data: data, lambda data: data, lambda _: b"lie"]
    started = []
    for number, (key, answer) in enumerate(zip(keys, answers, strict=True)):
        volunteer = Volunteer(
            Settings(url, key, backoff_s=(0.05, 0.2)),
            Ledger(directory / f"volunteer{number}", url),
            Transfer(url, timeout_s=5),
            EchoExecutor(answer),
        )
        thread = threading.Thread(target=volunteer.run)
        thread.start()
        started.append((volunteer, thread))
    return started


def kill_project(directory, *, tasks, kills, seed, database_url=""):
    """Return outcomes by name after `kills` kills drawn uniformly over the run."""
    draw, port = random.Random(seed), free_port()
    (directory / "outcomes").mkdir()
    engine = EmbeddedEngine(directory / "engine", database_url=database_url)
    names = [f"w{number}_1" for number in range(tasks)]
    engine.create_workunits([make_spec(name, redundancy=CHEATED) for name in names])
    keys = [
        engine.accounts.ensure(f"v{number}@example.org", engine.now()).weak_key
        for number in range(3)
    ]
    engine.close()
    volunteers = start_volunteers(directory, f"http://127.0.0.1:{port}/", keys)
    command = [sys.executable, "-c", PROJECT, str(directory), str(port), database_url]
    project = None
    try:
        for _ in range(kills):
            project = subprocess.Popen(command)
            time.sleep(0.7 + 1.5 * draw.random())
            project.kill()
            project.wait()
        project = subprocess.Popen(command)
        limit = time.monotonic() + 240
        while len(found := outcomes(directory)) < tasks:
            assert time.monotonic() < limit, sorted(set(names) - set(found))
            time.sleep(0.05)
    finally:
        project.kill()
        project.wait()
        for volunteer, thread in volunteers:
            volunteer.stop()
            thread.join()
            volunteer.close()
    return outcomes(directory)


def outcomes(directory):
    return {
        path.name: path.read_bytes()
        for path in (directory / "outcomes").iterdir()
        if path.suffix != ".part"
    }


def check(directory, found, tasks, database_url=""):
    assert len(found) == tasks
    for data in found.values():
        assert data.startswith(b"canonical ")
        assert data.endswith(b"\ninput")  # the cheat never wins
    engine = EmbeddedEngine(directory / "engine", database_url=database_url)
    try:
        for name, data in found.items():
            status = engine.status(name)
            assert status.outcome == "canonical"
            assert data.split(b"\n")[0].split()[1].decode() in {
                copy.name for copy in status.results if copy.outcome == "success"
            }
    finally:
        engine.close()


def test_killed_project_loses_no_task_and_ends_none_twice(tmp_path):
    found = kill_project(tmp_path, tasks=20, kills=2, seed=7)
    check(tmp_path, found, 20)


@pytest.mark.slow
def test_project_killed_many_times_loses_no_task(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    found = kill_project(tmp_path, tasks=200, kills=15, seed=seed)
    check(tmp_path, found, 200)


@pytest.mark.slow
def test_killed_project_on_mariadb_loses_no_task(tmp_path, mariadb_url):
    place = {"database_url": mariadb_url}
    found = kill_project(tmp_path, tasks=60, kills=5, seed=11, **place)
    check(tmp_path, found, 60, **place)
