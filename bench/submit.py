"""Submission: admit + log + workunit a second, and submit → result through volunteers.

Everything is real and durable: gate in its jail, log with its two databases, signer
process, embedded engine. The thesis's way starts two programs a task (`stage_file`, a
script, and `create_work`); its peer here are two programs that do nothing, so the ratio
is a lower bound.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import msgspec
from sqlalchemy import func, select

from bench.rows import Row
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.rpc import tasks_pb2_grpc
from stoilo.core.skeleton import encode
from stoilo.policies.policy import Policy, Quota, default_policy
from stoilo.server import auth, schema
from stoilo.server.assembly import TaskServer
from stoilo.server.config import ServerConfig
from stoilo.server.datadir import claim_directory
from stoilo.server.states import AttemptState
from stoilo.server.store import Store
from stoilo.server.up import assemble, start_project
from stoilo.testing.deployment import Deployment

SOURCE = "def task(kwargs):\n    return kwargs['x'] + {number}\n"
PLENTY = Quota(tasks_per_hour=10**9, running_tasks=10**6)
CACHED, UNCACHED, AT_ONCE = 3000, 150, 256


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
        await asyncio.sleep(0.01)
    return time.perf_counter() - start


def count_issued(server: TaskServer) -> int:
    """Return how many attempts have their workunit."""
    table = schema.attempt
    query = select(func.count()).where(table.c.state == AttemptState.ISSUED.value)
    with server.store.read() as connection:
        return connection.scalar(query) or 0


async def admission_rates(data: Path) -> tuple[float, float]:
    """Return tasks/s with cached and with uncached verdicts."""
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
        server, _ = assemble(config, home, stack, policy, project, store)
        with server.store.write() as connection:
            token = auth.issue_token(
                connection, "bench", auth.Role.RESEARCHER, int(time.time())
            )
        server.start()
        stack.callback(server.stop)
        await issue(server, token, [request("warm", 0)])
        same = [request(f"c{n}", 0) for n in range(CACHED)]
        other = [request(f"u{n}", n + 1) for n in range(UNCACHED)]
        cached = CACHED / await issue(server, token, same)
        uncached = UNCACHED / await issue(server, token, other)
    return cached, uncached


def two_programs_rate(tasks: int = 20) -> float:
    """Return tasks/s when each starts two programs that do nothing."""
    start = time.perf_counter()
    for _ in range(tasks):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        subprocess.run(["true"], check=True)  # noqa: S607 - any true will do
    return tasks / (time.perf_counter() - start)


def round_trips(data: Path) -> tuple[float, float]:
    """Return median s of one task alone, and tasks/s of 60 at once, two volunteers."""
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
            for number in range(5):
                start = time.perf_counter()
                wait(submit(f"a{number}"))
                alone.append(time.perf_counter() - start)
            start = time.perf_counter()
            for task_id in [submit(f"m{number}") for number in range(60)]:
                wait(task_id)
            together = 60 / (time.perf_counter() - start)
    return statistics.median(alone), together


def measure() -> list[Row]:
    """Return the rows of this suite."""
    with tempfile.TemporaryDirectory() as folder:
        cached, uncached = asyncio.run(admission_rates(Path(folder) / "admit"))
        peer = two_programs_rate()
        alone, together = round_trips(Path(folder) / "up")

    def row(name: str, ours: float, target: str, met: bool) -> Row:
        return Row(
            name,
            ours,
            "1/s",
            "two programs a task that do nothing",
            peer,
            ours / peer,
            "ours/peer",
            target,
            met,
        )

    return [
        row(
            "admit + log + workunit, durable, cached verdict",
            cached,
            ">= 20x and >= 1,000/s",
            cached >= 20 * peer and cached >= 1000,
        ),
        row(
            "the same, every source new to the gate",
            uncached,
            ">= 20x",
            uncached >= 20 * peer,
        ),
        Row("submit → validated result, one task alone, quorum 2", alone, "s"),
        Row("submit → validated result, 60 at once, two volunteers", together, "1/s"),
    ]
