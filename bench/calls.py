"""Calls a second through one volunteer: a task for each call, and many calls in a task.

The volunteer is Debian's unmodified BOINC client where it is installed (launcher, frozen
verifier and runtime, full jail), else our own; the row says which. A call adds two
numbers, so what is measured is the way there and back. The peer of `map` is a task for
each call through the same volunteer, in the same run; `map` chooses its chunks by itself
and begins with small ones, so that its rate grows with the number of calls.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import stoilo
from bench.rows import Row
from stoilo.core.types import Redundancy
from stoilo.testing.deployment import Deployment
from tests.support.boincproject import BoincProject, freeze_project

REACH = 500

ALONE = Redundancy(
    min_quorum=1, target_results=1, max_error=2, max_total=4, max_success=2
)


def add(call: dict[str, int]) -> int:
    """Return the sum of two numbers."""
    return call["left"] + call["right"]


@contextmanager
def volunteer(*, real: bool) -> Iterator[tuple[str, Path]]:
    """Yield who computes, and the connection file of a project that has it."""
    if real and shutil.which("boinc"):
        with tempfile.TemporaryDirectory(prefix="frozen-") as folder:
            frozen = Path(folder) / "data"
            freeze_project(frozen)
            with BoincProject(frozen) as project, project.client():
                yield "one real BOINC client", Path(project.line.connection)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        Deployment(Path(folder) / "up", volunteers=1) as deployment,
    ):
        assert deployment.line is not None
        yield "our own volunteer", Path(deployment.line.connection)


@dataclass(frozen=True, slots=True)
class MapRun:
    """What one map took.

    Attributes:
        calls: that it made.
        tasks: that they shared.
        seconds: from the first submission to the last result.
    """

    calls: int
    tasks: int
    seconds: float

    @property
    def calls_rate(self) -> float:
        """Return calls a second."""
        return self.calls / self.seconds

    @property
    def tasks_rate(self) -> float:
        """Return tasks a second."""
        return self.tasks / self.seconds


async def run_map(
    connection: Path, calls: int, chunk: int | None, redundancy: Redundancy = ALONE
) -> MapRun:
    """Make calls; `chunk` of them a task, or as many as `map` thinks right."""
    items = [{"left": number, "right": 1} for number in range(calls)]
    conn = await stoilo.connect(str(connection))
    start = time.perf_counter()
    run = conn.map(add, items, redundancy_options=redundancy, chunk_items=chunk)
    results = await run
    seconds = time.perf_counter() - start
    assert results == [number + 1 for number in range(calls)]
    return MapRun(calls, run.progress.tasks, seconds)


async def rate(connection: Path, calls: int, chunk: int | None) -> float:
    """Return calls per second from the first submission to the last result."""
    return (await run_map(connection, calls, chunk)).calls_rate


def measure(plain: int = 20, mapped: int = 100_000, *, real: bool = True) -> list[Row]:
    """Return the row of each way."""
    with volunteer(real=real) as (who, connection):
        asyncio.run(rate(connection, 2, 1))  # what the first task needs is fetched
        single = asyncio.run(rate(connection, plain, 1))
        many = asyncio.run(rate(connection, mapped, None))
    return [
        Row(f"tasks through {who}, quorum 1", single, "1/s"),
        Row(f"calls through {who}, {mapped:,} in map", many, "1/s",
            "a task for each call", single, many / single, "times as many",
            f">= {REACH}/s", many >= REACH),
    ]  # fmt: skip
