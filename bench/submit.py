"""Submission: admit + log + workunit a second, and submit → result through volunteers.

Everything is real and durable: gate in its jail, log with its two databases, signer
process, embedded engine. The thesis's way starts two programs a task: `stage_file`, a
script that hashes the input and copies it into a fan-out directory, and `create_work`,
which inserts the workunit. The peer does just that, and no more, in two small programs,
each durable as ours is; a row shows two programs that do nothing, as a lower bound.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import msgspec
from sqlalchemy import func, select

from bench.rows import Row
from stoilo.core.codec.skeleton import encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.policies.policy import Policy, Quota, default_policy
from stoilo.server.admission import tokens
from stoilo.server.app.task_server import TaskServer, assemble
from stoilo.server.config import ServerConfig
from stoilo.server.data_directory import claim_directory
from stoilo.server.db import schema
from stoilo.server.db.records import AttemptState
from stoilo.server.db.store import Store
from stoilo.server.release.project import start_project
from stoilo.testing.deployment import Deployment

SOURCE = "def task(kwargs):\n    return kwargs['x'] + {number}\n"
PLENTY = Quota(tasks_per_hour=10**9, running_tasks=10**6)
AT_ONCE = 256

STAGE_FILE = """import hashlib, os, sys
source, directory = sys.argv[1:]
data = open(source, "rb").read()
name = hashlib.md5(data, usedforsecurity=False).hexdigest()
target = os.path.join(directory, str(int(name[:8], 16) % 1024))
os.makedirs(target, exist_ok=True)
with open(os.path.join(target, os.path.basename(source)), "wb") as file:
    file.write(data)
    os.fsync(file.fileno())
"""
CREATE_WORK = """import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("pragma synchronous=full")
with database:
    database.execute("create table if not exists workunit (name text primary key)")
    database.execute("insert into workunit values (?)", (sys.argv[2],))
"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        cached: tasks whose source the gate knows.
        uncached: tasks whose source is new.
        peer: tasks of each peer.
        alone: round trips one by one.
        together: tasks at once.
    """

    cached: int = 3000
    uncached: int = 1500
    peer: int = 20
    alone: int = 7
    together: int = 60


def request(key: str, number: int) -> pb.CreateTaskRequest:
    """Return one small task."""
    return pb.CreateTaskRequest(
        idempotency_key=key,
        task_module=SOURCE.format(number=number).encode(),
        entry="task",
        arguments=encode({"x": number}),
    )


async def issue(
    server: TaskServer, token: str, requests: list[pb.CreateTaskRequest]
) -> float:
    """Submit all, wait until each has its workunit; returns seconds."""
    before = count_issued(server)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: pb.CreateTaskRequest) -> None:
        async with slots:
            await server.submissions.create(token, item)

    start = time.perf_counter()
    await asyncio.gather(*(one(item) for item in requests))
    while count_issued(server) - before < len(requests):  # noqa: ASYNC110 - rows
        await asyncio.sleep(0.02)
    return time.perf_counter() - start


def count_issued(server: TaskServer) -> int:
    """Return how many attempts have their workunit."""
    table = schema.attempt
    query = select(func.count()).where(table.c.state == AttemptState.ISSUED.value)
    with server.store.read() as connection:
        return connection.scalar(query) or 0


@asynccontextmanager
async def open_server(data: Path) -> AsyncIterator[tuple[TaskServer, str]]:
    """Yield a server without network and volunteers, and a token of plenty."""
    policy: Policy = msgspec.structs.replace(
        default_policy(), quotas={"researcher": PLENTY}
    )
    config = ServerConfig(data)
    async with AsyncExitStack() as stack:
        home = claim_directory(data)
        stack.callback(home.lock.close)
        store = Store.open(config.database_url)
        stack.callback(store.close)
        project = start_project(config, home, stack, policy, store)
        server = assemble(config, home, stack, policy, project, store).tasks
        with server.store.write() as connection:
            token = tokens.issue_token(
                connection, "bench", tokens.Role.RESEARCHER, int(time.time())
            )
        server.start()
        stack.callback(server.stop)
        yield server, token


async def filled(data: Path, tasks: int) -> None:
    """Leave a data directory with so many tasks that wait for volunteers."""
    async with open_server(data) as (server, token):
        await issue(server, token, [request(f"f{n}", 0) for n in range(tasks)])


async def admission_rates(data: Path, sizes: Sizes) -> tuple[float, float]:
    """Return tasks/s with cached and with uncached verdicts."""
    async with open_server(data) as (server, token):
        await issue(server, token, [request("warm", 0)])
        same = [request(f"c{n}", 0) for n in range(sizes.cached)]
        other = [request(f"u{n}", n + 1) for n in range(sizes.uncached)]
        cached = sizes.cached / await issue(server, token, same)
        uncached = sizes.uncached / await issue(server, token, other)
    return cached, uncached


def idle_programs_rate(tasks: int) -> float:
    """Return tasks/s when each starts two programs that do nothing."""
    start = time.perf_counter()
    for _ in range(tasks):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        subprocess.run(["true"], check=True)  # noqa: S607 - any true will do
    return tasks / (time.perf_counter() - start)


def two_programs_rate(tasks: int, folder: Path) -> float:
    """Return tasks/s when each stages its file and inserts its workunit so."""
    inputs = [folder / f"input{number}" for number in range(tasks)]
    for path in inputs:
        path.write_bytes(request("peer", 0).SerializeToString())
    start = time.perf_counter()
    for path in inputs:
        for program, *given in (
            (STAGE_FILE, path, folder / "download"),
            (CREATE_WORK, folder / "peer.sqlite", path.name),
        ):
            subprocess.run([sys.executable, "-c", program, *given], check=True)
    return tasks / (time.perf_counter() - start)


def round_trips(data: Path, sizes: Sizes) -> tuple[float, float]:
    """Return median s of one task alone, and tasks/s of many at once; two volunteers."""
    with Deployment(data, volunteers=2) as deployment:
        assert deployment.line is not None
        page = json.loads(Path(deployment.line.connection).read_text())
        credentials = grpc.ssl_channel_credentials(page["ca"].encode())
        metadata = [("authorization", f"Bearer {page['token']}")]
        with grpc.secure_channel(page["grpc"], credentials) as channel:
            stub = tasks_pb2_grpc.TaskServiceStub(channel)

            def submit(key: str) -> str:
                return stub.CreateTask(request(key, 1), metadata=metadata).task_id

            def wait(task_id: str) -> None:
                asked = pb.PollTaskRequest(task_id=task_id)
                while True:
                    answer = stub.PollTask(asked, metadata=metadata)
                    if answer.state not in {"admitting", "running"}:
                        break
                    time.sleep(0.02)
                assert answer.state == "succeeded", answer

            wait(submit("warm"))
            alone = []
            for number in range(sizes.alone):
                start = time.perf_counter()
                wait(submit(f"a{number}"))
                alone.append(time.perf_counter() - start)
            start = time.perf_counter()
            for task_id in [submit(f"m{number}") for number in range(sizes.together)]:
                wait(task_id)
            together = sizes.together / (time.perf_counter() - start)
    return statistics.median(alone), together


def measure(sizes: Sizes | None = None) -> list[Row]:
    """Return the rows of this suite."""
    sizes = sizes or Sizes()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        before = two_programs_rate(sizes.peer, place)
        cached, uncached = asyncio.run(admission_rates(place / "admit", sizes))
        (place / "again").mkdir()
        after = two_programs_rate(sizes.peer, place / "again")
        idle = idle_programs_rate(sizes.peer)
        alone, together = round_trips(place / "up", sizes)
    peer = statistics.mean((before, after))
    return [
        _rate_row("admit + log + workunit, durable, cached verdict", cached, peer,
                  ">= 20x and >= 1,000/s", cached >= 20 * peer and cached >= 1000),
        _rate_row("the same, every source new to the gate", uncached, peer,
                  ">= 20x", uncached >= 20 * peer),
        Row("admit + log + workunit, cached verdict, lower bound", cached, "1/s",
            "two programs a task that do nothing", idle, cached / idle, "ours/peer"),
        Row("submit → validated result, one task alone, quorum 2", alone, "s"),
        Row(f"submit → validated result, {sizes.together} at once, two volunteers",
            together, "1/s"),
    ]  # fmt: skip


def _rate_row(name: str, ours: float, peer: float, target: str, met: bool) -> Row:
    what = "two programs a task: stage the file, insert the workunit"
    return Row(name, ours, "1/s", what, peer, ours / peer, "ours/peer", target, met)
