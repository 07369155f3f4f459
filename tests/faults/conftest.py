"""One deployment a module, attacked from outside; what it must still do afterwards."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import decode, encode
from stoilo.server.admission import tokens
from stoilo.server.db.store import Store
from stoilo.testing.deployment import Deployment
from tests.support.wire import BoincPeer, RawClient
from tests.support.workingproject import WorkingProject

START = 1_700_000_000
VOLUNTEERS = 2
COUNT = "select count(*) from "


def walk(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`, where folders come and go meanwhile."""
    for place, _, names in os.walk(folder):  # Path.rglob raises for one that goes
        yield from (Path(place, name) for name in names)


@dataclass(frozen=True)
class Target:
    """A running server with two honest volunteers, one client, one stranger."""

    deployment: Deployment
    client: RawClient
    stranger: RawClient
    peer: BoincPeer

    @property
    def data(self) -> Path:
        return self.deployment.data

    @property
    def project(self) -> str:
        line = self.deployment.line
        assert line is not None
        assert line.project is not None
        return line.project

    def count(self, database: str, query: str) -> int:
        """Answer a counting query, read-only, beside the running server."""
        with sqlite3.connect(f"file:{self.data / database}?mode=ro", uri=True) as found:
            return int(found.execute(query).fetchone()[0])

    def rows(self) -> dict[str, int]:
        """Count everything that a request could leave behind."""
        server = ("task", "attempt", "content", "blob", "blob_grant")
        engine = ("engine_user", "engine_host")
        found = {one: self.count("server.sqlite", COUNT + one) for one in server}
        for one in engine:
            found[one] = self.count("engine/engine.sqlite", COUNT + one)
        return found

    def copy_row(self, name: str) -> tuple[str, str, str]:
        """Return state, outcome and code of a copy as the engine has them."""
        place = f"file:{self.data / 'engine' / 'engine.sqlite'}?mode=ro"
        query = "select state, outcome, code from engine_result where name = ?"
        with sqlite3.connect(place, uri=True) as found:
            state, outcome, code = found.execute(query, [name]).fetchone()
        return str(state), str(outcome), str(code)

    def blob_files(self) -> set[Path]:
        """Return every file under the blob directory."""
        return set(walk(self.data / "blobs"))

    def logs(self) -> str:
        """Return the text of every log of every process."""
        below = [path for path in walk(self.data) if path.suffix == ".log"]
        paths = [*below, *self.data.parent.glob("*.log")]
        return "".join(path.read_text(errors="replace") for path in paths)

    def tracebacks(self) -> int:
        """Count tracebacks in all logs."""
        return self.logs().count("Traceback")


def token_for(data: Path, name: str, role: tokens.Role, lifetime_s: int = 10**9) -> str:
    """Return a token of a new account, made beside the running server."""
    store = Store(f"sqlite:///{data / 'server.sqlite'}")
    with store.write() as connection:
        token = tokens.issue_token(connection, name, role, START, lifetime_s=lifetime_s)
    store.close()
    return token


@pytest.fixture(scope="module")
def target(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]
) -> Iterator[Target]:
    data = tmp_path_factory.mktemp("bad") / "data"
    with Deployment(data, volunteers=VOLUNTEERS) as deployment:
        assert deployment.line is not None
        connection = Path(deployment.line.connection)
        stranger = token_for(data, "stranger", tokens.Role.RESEARCHER)
        key = deployment.account("mallory@example.org")
        project = deployment.line.project or ""
        with RawClient(connection) as client, RawClient(connection, stranger) as other:
            found = Target(deployment, client, other, BoincPeer(project, key))
            # What an honest task and the volunteers leave is there before anything counts.
            client.wait(client.submit())
            wait_until(lambda: found.rows()["engine_host"] >= VOLUNTEERS)
            yield found


@pytest.fixture(scope="module")
def honest_tasks(target: Target) -> Iterator[dict[str, str]]:
    """Honest tasks, one after attacks of each kind and one after all; all must succeed."""
    tasks: dict[str, str] = {}
    yield tasks
    for task_id in (*tasks.values(), target.client.submit()):
        answer = target.client.wait(task_id)
        assert (answer.state, decode(answer.value)) == ("succeeded", 42)


@pytest.fixture
def harmless(
    target: Target, honest_tasks: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[None]:
    """After the attack: no row, no blob file, no traceback more; the server takes tasks."""
    rows, files, traces = target.rows(), target.blob_files(), target.tracebacks()
    yield
    deadline = time.monotonic() + 60  # an upload that hung up is cleared soon after
    while target.blob_files() != files and time.monotonic() < deadline:
        time.sleep(0.05)
    left = (target.rows(), target.blob_files(), target.tracebacks())
    assert left == (rows, files, traces)
    kind = request.function.__name__
    if kind not in honest_tasks:
        honest_tasks[kind] = target.client.submit()


@pytest.fixture(scope="module")
def token_maker(target: Target) -> Callable[..., str]:
    return partial(token_for, target.data)


@pytest.fixture(scope="module")
def finished_key() -> str:
    return "the-finished-one"


@pytest.fixture(scope="module")
def finished(target: Target, finished_key: str) -> str:
    """Return the id of a task of the client that has succeeded."""
    task_id = target.client.submit(idempotency_key=finished_key)
    assert target.client.wait(task_id).state == "succeeded"
    return task_id


@pytest.fixture(scope="module")
def blob(target: Target) -> str:
    """Return the digest of a blob that the client has uploaded."""
    data = encode(list(range(1000)))
    digest = hashlib.sha256(data).hexdigest()
    assert target.client.upload(digest, len(data), data).status == "OK"
    return digest


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]
) -> Iterator[WorkingProject]:
    with WorkingProject.make(tmp_path_factory.mktemp("attacked"), wait_until) as made:
        yield made


@pytest.fixture
def others_go_on(world: WorkingProject) -> Iterator[None]:
    """After the attack the honest volunteer still gets work and reports it."""
    yield
    world.goes_on()
