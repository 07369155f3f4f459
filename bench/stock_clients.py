"""Two real BOINC clients on a live stock project: tasks and calls a second, end to end.

Debian's unmodified clients, each a computer of another volunteer; `stoilo up` is started on
the project. A call adds two numbers, so what is measured is the way there and back: gate,
log, `create_work`, feeder, scheduler, download, jail, upload, report, the validator's and
the assimilator's scripts. Accounts and computers are added to the project and stay.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.calls import run_map
from bench.rows import Row
from stoilo.core.types import Redundancy
from stoilo.server.engines.stock.project.directory import read_project
from stoilo.testing.deployment import Deployment
from tests.support.boinc import BoincClient
from tests.support.stockvolunteer import create_stock_account

CLIENTS = 2
WHO = "two real BOINC clients on a stock project (live)"
TWICE = Redundancy(
    min_quorum=2, target_results=2, max_error=3, max_total=6, max_success=3
)


@dataclass(frozen=True, slots=True)
class Calls:
    """How much is measured: tasks of one call each, calls of a map, the same twice."""

    single: int = 40
    mapped: int = 100_000
    twice: int = 20_000


@contextmanager
def two_clients(project_dir: Path, data: Path) -> Iterator[Path]:
    """Yield the connection file of a server on the project, with two clients attached.

    Args:
        project_dir: the stock project's.
        data: directory of the server whose release is installed there.
    """
    url = read_project(project_dir).config.text("master_url")
    options = ("--engine", "stock", "--project-dir", str(project_dir))
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="stock-clients-"))
        stack.callback(shutil.rmtree, folder)
        folder.chmod(0o755)  # clients run as another user below it
        server = Deployment(data, log=folder / "up.log", options=options)
        stack.enter_context(server)
        for _ in range(CLIENTS):
            name = f"b{secrets.token_hex(4)}"
            key = create_stock_account(url, f"{name}@example.org")
            stack.enter_context(BoincClient(folder / name, url, key))
        assert server.line is not None
        yield Path(server.line.connection)


def measure_clients(
    project_dir: Path, data: Path, calls: Calls | None = None
) -> list[Row]:
    """Return the rows of single tasks, and of calls in a map with quorum 1 and 2."""
    calls = calls or Calls()
    with two_clients(project_dir, data) as connection:
        asyncio.run(run_map(connection, 4, 1))  # what the first task needs is fetched
        single = asyncio.run(run_map(connection, calls.single, 1))
        mapped = asyncio.run(run_map(connection, calls.mapped, None))
        twice = asyncio.run(run_map(connection, calls.twice, None, TWICE))
    against, base = "a task for each call", single.calls_rate
    return [
        Row(f"tasks through {WHO}, quorum 1", base, "1/s"),
        Row(f"calls through {WHO}, {mapped.calls:,} in map, {mapped.tasks} tasks",
            mapped.calls_rate, "1/s", against, base, mapped.calls_rate / base,
            "times as many"),
        Row(f"tasks of that map through {WHO}", mapped.tasks_rate, "1/s"),
        Row(f"the same with quorum 2, {twice.calls:,} in map, {twice.tasks} tasks",
            twice.calls_rate, "1/s", against, base, twice.calls_rate / base,
            "times as many"),
    ]  # fmt: skip
