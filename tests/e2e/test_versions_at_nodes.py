"""`stoilo up` with nodes: a task's blob goes to all of them, and its volunteer comes to one."""

import random
import sys
import time

import pytest

from stoilo.client.session import Journal
from stoilo.client.sync import connect_sync
from stoilo.core.types import Redundancy
from stoilo.learn.traffic.origin import Origin
from stoilo.testing.deployment import Deployment
from tests.support.networkshard import NetworkShard

NAMES = ("oslo", "turin", "porto")
TURNS = 8  # hosts that come one after the other, until one is sent to a node
TOLD_S = 15.0  # in which a node's word on what it sent arrives; turns last two checks' pauses
ALONE = Redundancy(min_quorum=1, target_results=1)


def measure(kw):
    return len(kw["model"])


@pytest.fixture
def site(tmp_path):
    """A dispatcher and three nodes that serve volunteers, as an operator starts them."""
    started = []

    def start(command, name, *more):
        program = (sys.executable, "-m", "stoilo", "learn", command)
        started.append(NetworkShard(tmp_path / name, program, more))
        return started[-1]

    hub = start("dispatcher", "hub", *(f"--node={name}" for name in NAMES))
    for name in NAMES:
        told = f"--dispatcher={hub.folder / 'nodes' / name}.json"
        start("node", name, told, "--serve=127.0.0.1:0")
    yield started
    for one in started:
        one.kill()


@pytest.mark.slow
def test_blob_is_fetched_at_a_node_and_from_the_server_when_all_are_gone(
    site, tmp_path, monkeypatch, wait_until
):
    hub, own, *_ = site
    monkeypatch.setenv("STOILO_SERVER_NODE", str(own.folder / "connection.json"))
    monkeypatch.setenv("STOILO_SERVER_DISPATCHER", str(hub.folder / "connection.json"))
    eye = Origin(own.place, hub.place)

    def look():
        eye.ask()
        return eye.holders()

    with Deployment(tmp_path / "data") as running:
        journal = Journal(tmp_path / "journal")
        with connect_sync(running.line.connection, journal=journal) as conn:

            def submit(seed, turn=0):
                stored = conn.put(random.Random(seed).randbytes(300_000))
                given = {"model": stored, "turn": turn}
                return conn.create_task(
                    measure, given, redundancy_options=ALONE
                ).submit()

            def bring(turn, task):
                """Let a new host fetch the blob; return it, and what is known of rates."""
                host = running.attach("v@example.org", tmp_path / f"v{turn}")
                assert task.result(120) == 300_000
                end = time.monotonic() + TOLD_S
                while not look().rates and time.monotonic() < end:
                    time.sleep(0.2)
                return host, look().rates

            task = submit(1)
            wait_until(lambda: [len(u) for u in look().urls.values()] == [len(NAMES)])
            # That the dispatcher knows it does not mean that the server has heard of it and
            # found the nodes well: until then hosts get the blob from the server.
            volunteer, rates = bring(0, task)
            for turn in range(1, TURNS):
                if rates:
                    break
                volunteer.terminate()
                volunteer.wait()
                volunteer, rates = bring(turn, submit(1, turn))
            assert {*rates["127.0.0.0/24"]} <= {one.line.get("url") for one in site}
            for one in site:
                one.kill()
            assert submit(2).result(120) == 300_000
            volunteer.terminate()
            volunteer.wait()
