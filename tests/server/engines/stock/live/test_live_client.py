"""Debian's BOINC client, attached to a live stock project, runs what researchers send."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import InternalError
from stoilo.testing.deployment import Deployment
from tests.support.boinc import BoincClient
from tests.support.boincproject import LIMITS, ONE_COPY, SPIN, TWO_COPIES
from tests.support.stockvolunteer import create_stock_account
from tests.support.wire import UNFINISHED, RawClient

pytestmark = pytest.mark.slow
DATA = "STOILO_STOCK_DATA"
WAIT_S = 600


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="stock-live-"))
    made.chmod(0o755)  # clients run as another user below it
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def server(stock_project, folder):
    """`stoilo up` on the project, with the release that was installed there."""
    data = os.environ.get(DATA)
    if not data:
        pytest.skip("needs the data directory whose release was installed")
    options = ("--engine", "stock", "--project-dir", str(stock_project.root))
    with Deployment(Path(data), log=folder / "up.log", options=options) as made:
        yield made
    print((folder / "up.log").read_text()[-2000:])


@pytest.fixture(scope="module")
def clients(stock_project, folder):
    """Two computers of two volunteers."""
    url = stock_project.config.text("master_url")
    with ExitStack() as stack:
        made = []
        for _ in range(2):
            name = f"v{secrets.token_hex(4)}"
            key = create_stock_account(url, f"{name}@example.org")
            client = BoincClient(folder / name, url, key)
            made.append(stack.enter_context(client))
        yield made


def submit(server, redundancy, number):
    with RawClient(Path(server.line.connection)) as researcher:
        return researcher.submit(
            task_module=SPIN,
            arguments=encode({"rounds": 1000 + number}),
            redundancy=redundancy,
            limits=LIMITS,
        )


def state(server, task):
    try:
        with RawClient(Path(server.line.connection)) as researcher:
            return researcher.poll(task).state
    except InternalError:  # the server is being started again
        return "running"


def wait(server, clients, tasks):
    """Wait for the ends of tasks; returns their states."""
    ended = {}

    def all_ended():
        ended.update(
            {
                one: said
                for one in tasks
                if (said := state(server, one)) not in UNFINISHED
            }
        )
        return len(ended) == len(tasks)

    clients[0].wait_for(all_ended, WAIT_S)
    return set(ended.values())


def test_quorum_of_two_real_clients_gives_the_results(server, clients):
    begun = time.monotonic()
    tasks = [submit(server, TWO_COPIES, number) for number in range(4)]
    assert wait(server, clients, tasks) == {"succeeded"}
    print(json.dumps({"quorum_tasks": 4, "seconds": time.monotonic() - begun}))


def test_many_tasks_are_shared_by_two_real_clients(server, clients):
    begun = time.monotonic()
    tasks = [submit(server, ONE_COPY, number) for number in range(20)]
    assert wait(server, clients, tasks) == {"succeeded"}
    print(json.dumps({"single_tasks": 20, "seconds": time.monotonic() - begun}))


def test_server_killed_while_clients_compute_loses_nothing(server, clients):
    tasks = [submit(server, ONE_COPY, number) for number in range(6)]
    clients[0].wait_for(lambda: clients[0].tasks() or clients[1].tasks())
    server.kill()
    server.start()
    assert wait(server, clients, tasks) == {"succeeded"}
