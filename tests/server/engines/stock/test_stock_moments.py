"""Server and stock project restored to different moments: no task waits for ever."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from stock_bench import StockBench

from stoilo.audit.log.side import SideStore
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.policies.policy import default_policy
from stoilo.server.admission import tokens
from stoilo.server.app.task_server import Dependencies, TaskServer
from stoilo.server.db import rows
from stoilo.server.db.store import Store
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.log.ports import ProjectFacts
from tests.support.server import (
    MemoryLog,
    PlainJudge,
    PythonValidators,
    StampSigner,
    make_level,
    make_result,
)

pytestmark = pytest.mark.slow  # each of BOINC's calls is a process


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as it is at this moment, as a dump in one transaction does."""
    target.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(source)) as reading,
        closing(sqlite3.connect(target)) as writing,
    ):
        reading.backup(writing)


class Project:
    """A server on a stock project, each with a database that can be put back."""

    def __init__(self, place: Path, clock) -> None:
        self.place, self.clock = place, clock
        self.stock = StockBench(place / "project", clock)
        self.log, self.side = MemoryLog(), SideStore.in_memory()
        self.databases = {
            "server": place / "server.sqlite",
            "boinc": place / "project" / "boinc.sqlite",
        }
        self.open()
        with self.store.write() as connection:
            role = tokens.Role.RESEARCHER
            self.token = tokens.issue_token(connection, "ada", role, clock())

    def open(self) -> None:
        """Start the server on what is there."""
        self.store = Store.open(f"sqlite:///{self.databases['server']}")
        validators = PythonValidators()
        end = self.clock() + 30 * 86_400
        around = Dependencies(
            log=self.log,
            signer=StampSigner(),
            engine=self.stock.engine,
            judge=PlainJudge(),
            policy=default_policy(),
            jail_of=lambda *_: validators,
            levels=make_level,
            flavors=lambda wish, level, _: content_digest(f"{wish}{level}".encode()),
            facts=lambda: ProjectFacts("stoilo.test/log", 1, end, "2" * 64),
            clock=self.clock,
            revocations=lambda _: b"revocations",
            side=self.side,
        )
        self.server = TaskServer(self.store, self.place / "blobs", around)
        self.stock.validation = self.server.validation
        self.stock.outcomes = self.server.keeper
        self.stock.restart()

    def close(self) -> None:
        self.store.close()
        self.stock.close()

    def save(self, name: str) -> None:
        """Take a backup of one of the two."""
        copy_database(self.databases[name], self.place / f"{name}.saved")

    def put_back(self, name: str) -> None:
        """Stop, let one database be what it was, start."""
        self.close()
        copy_database(self.place / f"{name}.saved", self.databases[name])
        self.stock.reopen()
        self.open()

    def submit(self) -> str:
        """Submit a task and have its workunit made."""
        request = pb.CreateTaskRequest(
            idempotency_key="k1",
            task_module=b"def task(kwargs):\n    return kwargs['x'] + 1\n",
            entry="task",
            arguments=encode({"x": 1}),
        )
        row = asyncio.run(self.server.submissions.create(self.token, request))
        self.server.pipeline.run_once()
        return row.task_id

    def compute(self, task: str) -> None:
        """Have two volunteers finish what they get of a task."""
        for user in (1, 2):
            for copy in self.stock.fetch(user):
                number = int(copy.removeprefix(f"{task}_").partition("_")[0])
                with self.store.read() as connection:
                    attempt = rows.find_attempt(connection, task, number)
                frame = {"status": "ok", "value": encode(2)}
                body = make_result(copy, attempt.statement, frame)
                self.stock.finish(user, copy, body)
        self.stock.settle()
        self.server.pipeline.run_once()

    def poll(self, task: str) -> tuple[str, int]:
        with self.store.read() as connection:
            owner = tokens.find_owner(connection, self.token, self.clock())
        answer = self.server.desk.poll(owner, task)
        return answer.state, answer.attempt


@pytest.fixture
def project(tmp_path, clock):
    made = Project(tmp_path, clock)
    yield made
    made.close()


def test_server_put_back_behind_an_end_that_was_told_computes_again(project):
    task = project.submit()
    project.save("server")
    project.compute(task)
    assert project.poll(task) == ("succeeded", 1)
    project.put_back("server")
    assert project.poll(task) == ("running", 1)
    for _ in range(2):
        project.server.pipeline.run_once()
    assert project.poll(task) == ("running", 2)
    project.compute(task)
    assert project.poll(task) == ("succeeded", 2)


def end_first_attempt(project, task):
    """Let the first admission end; the second attempt's workunit is made."""
    with project.store.read() as connection:
        project.clock.now = rows.find_attempt(connection, task, 1).not_after + 10
    for _ in range(3):
        project.stock.settle()
        project.server.pipeline.run_once()
    assert project.poll(task) == ("running", 2)


def test_server_put_back_before_an_attempt_was_issued_takes_no_older_workunit(project):
    task = project.submit()
    project.save("server")
    end_first_attempt(project, task)
    project.put_back("server")
    project.clock.now += 60
    for _ in range(3):
        project.server.pipeline.run_once()
    assert project.poll(task) == ("running", 3)
    assert project.stock.engine.status(f"{task}_2").outcome is OutcomeKind.CANCELLED
    project.compute(task)
    assert project.poll(task) == ("succeeded", 3)


def test_project_put_back_before_a_workunit_was_made_gets_another(project):
    project.save("boinc")
    task = project.submit()
    project.put_back("boinc")
    for _ in range(2):
        project.server.pipeline.run_once()
    project.compute(task)
    assert project.poll(task) == ("succeeded", 2)


def leave_untaken(project, task):
    """Have a task computed while the server takes no outcome."""

    class Away:
        def assimilate(self, outcome):
            raise RuntimeError(outcome.workunit)

    project.stock.outcomes = Away()
    project.stock.restart()
    project.compute(task)


def take_turns(project, hours):
    for _ in range(hours):
        project.clock.now += 3600
        project.stock.engine.step()
        project.server.pipeline.run_once()


def test_outcome_whose_files_were_copied_too_late_is_computed_again(project):
    task = project.submit()
    leave_untaken(project, task)
    project.close()
    shutil.rmtree(project.place / "project" / "stoilo" / "kept")
    project.stock.reopen()
    project.open()
    take_turns(project, 12)
    assert project.poll(task) == ("running", 2)
    project.compute(task)
    assert project.poll(task) == ("succeeded", 2)


def test_outcome_that_the_server_takes_late_is_not_computed_again(project):
    task = project.submit()
    leave_untaken(project, task)
    take_turns(project, 12)
    project.stock.outcomes = project.server.keeper
    project.stock.restart()
    take_turns(project, 1)
    assert project.poll(task) == ("succeeded", 1)


def test_both_of_one_moment_go_on_as_if_nothing_had_been(project):
    task = project.submit()
    project.save("server")
    project.save("boinc")
    project.put_back("server")
    project.put_back("boinc")
    project.server.pipeline.run_once()
    project.compute(task)
    assert project.poll(task) == ("succeeded", 1)
