"""Programs run in every place: threads, volunteers that fail, workers beside a server."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.backends.simulated import SimulatedBackend, SimulatedHost, Spell
from stoilo.learn.core.data import Part
from stoilo.learn.driver.run import Run, RunSettings
from stoilo.learn.paracel.program import work, work_apart
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.store.shards import LocalShard
from stoilo.learn.store.workers import ClockService, Worker


def unlike_parts(x, y):
    """Return four parts: the first lines in a small one, the rest in larger ones."""
    cuts = [len(x) // 20, len(x) // 4, len(x) // 2]
    pairs = zip(np.split(x, cuts), np.split(y, cuts), strict=True)
    return [Part(*pair) for pair in pairs]


async def on_tasks(program, x, y, backend, staleness=0):
    """Run a program's method as tasks; return what it found."""
    model, parts = program.model(), unlike_parts(x, y)
    method = program.method(model.first(), [len(part) for part in parts], staleness)
    settings = RunSettings(clip=None)
    async with backend, Run(method, model, parts, backend, settings) as run:
        return (await run.finish()).parameters


async def on_threads(program, x, y, staleness=0):
    return await on_tasks(program, x, y, LocalBackend(), staleness)


async def on_crowd(program, x, y, staleness=0):
    """Volunteers that lose tasks, stall, leave and return."""
    away = [(), (Spell(5.0, 20.0),), (Spell(15.0, 40.0),)]
    hosts = [SimulatedHost(loss=0.05, stall=0.1, away=away[i % 3]) for i in range(6)]
    return await on_tasks(program, x, y, SimulatedBackend(hosts), staleness)


async def on_workers(program, x, y, limit=0, *, task=work):
    functions = [program.update] if program.update else []
    shards = {name: LocalShard(None, functions) for name in ("a", "b")}
    server, parts = ParameterServer(shards, functions), unlike_parts(x, y)
    names = [f"w{index}" for index in range(4)]
    clock = ClockService(names, limit)

    def serve(name):
        worker = Worker(name, server, clock, total=program.rounds)
        index = names.index(name)
        return task(program, worker, parts[index], index)

    with ThreadPoolExecutor(4) as pool:
        return next(iter(list(pool.map(serve, names))))


async def on_workers_apart(program, x, y, staleness):
    return await on_workers(program, x, y, staleness, task=work_apart)


@pytest.fixture(params=[on_threads, on_crowd, on_workers_apart])
def run_apart(request):
    """Return ``(program, x, y, staleness) -> parameters`` of a place."""
    return request.param


@pytest.fixture(params=[on_threads, on_crowd, on_workers])
def run(request):
    """Return ``(program, x, y) -> parameters`` of a place."""
    return request.param
