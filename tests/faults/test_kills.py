"""kill -9 of every process, at every durable step: nothing lost, nothing finished twice.

Counted from outside: the submitter's ids and values, the leaves of the published log and the
rows of the server's tables. The report names every kill (`-s` shows it).
"""

import asyncio
import random
import sqlite3
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import stoilo
from stoilo.audit.format.proof import LeafKind, parse_leaf
from stoilo.audit.format.tiles import decode_bundle
from stoilo.audit.read.reader import verify_log
from stoilo.cli.demo.parts import load_research
from stoilo.testing.deployment import Deployment

sys.path.insert(0, str(Path(__file__).parent))
from victims import kill, victims

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
KILLER = str(Path(__file__).with_name("killing_server.py"))
SEED = 20_261_120
OTHER_KILLS = {"signer": 6, "volunteer": 8, "zygote": 8, "child": 8}


class KillableDeployment(Deployment):
    """A deployment that may be started with a kill point or a census."""

    instrument = ()

    def command(self):
        python, *rest = super().command()
        if not self.instrument:
            return [python, *rest]
        return [python, KILLER, *self.instrument, *rest[2:]]


class Workload:
    """Submits small tasks all the while and knows what each must return."""

    def __init__(self, conn, count_hits):
        self.conn, self.count_hits = conn, count_hits
        self.submitted = []

    async def submit(self, number):
        for _ in range(number):
            kwargs = {"seed": len(self.submitted), "n": 50}
            task = self.conn.create_task(func=self.count_hits, kwargs=kwargs)
            self.submitted.append((kwargs, asyncio.ensure_future(task.submit())))

    async def check_all(self):
        tasks = [await handle for _, handle in self.submitted]
        results = await asyncio.gather(*(task.result(timeout=900) for task in tasks))
        wanted = [self.count_hits(kwargs) for kwargs, _ in self.submitted]
        for task, result, value in zip(tasks, results, wanted, strict=True):
            assert result == value, await task.status()
        return [task.task_id for task in tasks]


def read_census(path):
    return sorted(set(path.read_text().split()))


async def wait_dead(deployment, seconds):
    """Return whether the server ends by itself within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if deployment.process.poll() is not None:
            return True
        await asyncio.sleep(0.02)
    return False


async def start(deployment, *instrument):
    """Start; a kill point met while starting counts as a kill and is tried once."""
    deployment.instrument = instrument
    try:
        await asyncio.to_thread(deployment.start)
    except stoilo.StoiloError:
        return False
    return True


async def take_census(deployment, work, path):
    await start(deployment, "census", str(path))
    await work.submit(4)
    await asyncio.gather(*(handle for _, handle in work.submitted))
    await work.check_all()
    await asyncio.to_thread(deployment.kill)
    return read_census(path)


async def kill_at_points(deployment, work, points, report):
    for point in points:
        alive = await start(deployment, point, "0")
        if alive:
            await work.submit(2)
            alive = not await wait_dead(deployment, 60)
        if not alive:
            report.append(f"server at {point}")
        await asyncio.to_thread(deployment.kill)


async def kill_others(deployment, work, chooser, report):
    assert await start(deployment)
    todo = [kind for kind, number in OTHER_KILLS.items() for _ in range(number)]
    chooser.shuffle(todo)
    for kind in todo:
        await work.submit(3)
        await asyncio.sleep(chooser.uniform(0.0, 1.5))
        if await strike(deployment, kind, chooser):
            report.append(kind)


async def strike(deployment, kind, chooser):
    """Kill one process of `kind` as soon as there is one; whether there was."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = victims(deployment.pid, kind)
        if found and kill(chooser.choice(found)):
            return True
        await asyncio.sleep(0.003)
    return False


def read_leaves(data):
    log = data / "audit" / "log"
    size = int((log / "checkpoint").read_bytes().split(b"\n")[1])
    leaves, index = [], 0
    while len(leaves) < size:
        width = min(256, size - len(leaves))
        name = f"{index:03d}" + ("" if width == 256 else f".p/{width}")
        bundle = (log / "tile" / "entries" / name).read_bytes()
        leaves += decode_bundle(bundle, width)
        index += 1
    return [parse_leaf(leaf) for leaf in leaves]


def count_outside(data, ids):
    """Assert what the log and the tables say about `ids`, none twice."""
    kinds = Counter(leaf.kind for leaf in read_leaves(data))
    assert len({leaf.digest for leaf in read_leaves(data)}) == sum(kinds.values())
    assert kinds[LeafKind.RESULT] == len(ids)
    with sqlite3.connect(f"file:{data / 'server.sqlite'}?mode=ro", uri=True) as rows:
        tasks = rows.execute("select count(*) from task").fetchone()[0]
        finals = rows.execute(
            "select count(*) from task where state = 'succeeded'"
        ).fetchone()[0]
        attempts = rows.execute("select count(*) from attempt").fetchone()[0]
    assert (tasks, finals) == (len(ids), len(ids))
    assert kinds[LeafKind.ADMISSION] == kinds[LeafKind.WORKUNIT] == attempts


def wait_logged(data, number):
    """Wait until that many results are in the published log."""
    end = time.monotonic() + 120
    while count_results(data) < number:
        assert time.monotonic() < end
        time.sleep(0.2)


def count_results(data):
    """Count the results in a log that goes on, 0 where its files just change."""
    try:
        return sum(leaf.kind is LeafKind.RESULT for leaf in read_leaves(data))
    except OSError:
        return 0


async def whole_run(deployment, folder, report):
    research = load_research()
    chooser = random.Random(SEED)
    assert await start(deployment, "census", str(folder / "first"))
    where = deployment.data / "connection.json"
    async with await stoilo.connect(where, patience=1800) as conn:
        work = Workload(conn, research.count_hits)
        await asyncio.to_thread(deployment.kill)
        points = await take_census(deployment, work, folder / "census")
        await kill_at_points(deployment, work, points, report)
        await kill_others(deployment, work, chooser, report)
        ids = await work.check_all()
        await asyncio.to_thread(wait_logged, deployment.data, len(ids))
    return points, ids


class Report(list):
    """Names every kill as it happens."""

    def append(self, line):
        super().append(line)
        print(f"kill {len(self)}: {line}", flush=True)


def test_no_kill_loses_a_task_or_finishes_one_twice(tmp_path):
    report = Report()
    # one more than a quorum: a copy that was killed at every try goes to a third user
    deployment = KillableDeployment(tmp_path / "data", volunteers=3)
    try:
        points, ids = asyncio.run(whole_run(deployment, tmp_path, report))
    finally:
        deployment.stop()
    data = deployment.data
    count_outside(data, ids)
    assert verify_log(data).size >= 2 * len(ids)
    struck = {line.removeprefix("server at ") for line in report}
    missed = [point for point in points if point not in struck]
    print(f"{len(report)} kills, {len(ids)} tasks, points not met again: {missed}")
    assert len(report) >= 50
    assert not missed
