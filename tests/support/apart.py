"""A project of which only names come to a trainer: blobs, task endings, shards that know it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from stoilo.client.capture.arguments import StoredValue
from stoilo.core.errors import StoiloError
from stoilo.learn.backends import Backend, Handle, Job, JobEnd
from stoilo.learn.core.data import Part
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import Project, ShardService
from stoilo.learn.store.place import ShardPlace

__all__ = [
    "FakeProject",
    "FakeServer",
    "make_bowl_parts",
    "make_valley",
    "serve_shards",
    "softmax_loss",
    "valley",
]


Arrays = dict[str, np.ndarray[Any, Any]]
Spoil = Callable[[int, Any], Any]  # number of the job and its value → what comes back


class FakeProject:
    """What a project keeps: blobs by digest, and what tasks ended in."""

    def __init__(self) -> None:
        self.blobs: dict[str, object] = {}
        self.ends: dict[str, object] = {}

    def store(self, value: object) -> p.Tagged:
        """Keep a blob."""
        stored, _ = StoredValue.of(value)
        self.blobs[stored.digest] = value
        return p.Tagged(stored.digest, stored.size)

    def fetch(self, task: str) -> object:
        """Return a task's end, or raise it: what does not decode."""
        found = self.ends[task]
        if isinstance(found, StoiloError):
            raise found
        return found

    def close(self) -> None:
        """Do nothing."""


class FakeServer(Backend):
    """Runs jobs at once, on blobs; with `spoil`, some answers are other than computed."""

    def __init__(
        self, project: FakeProject, spoil: Spoil = lambda _, value: value
    ) -> None:
        self.project, self.refused = project, list[str]()
        self._spoil, self._waits, self._ended = spoil, True, list[str]()

    def leave_values(self) -> None:
        """Give no values with endings."""
        self._waits = False

    async def put(self, value: object) -> Handle:
        """Keep a blob."""
        one = self.project.store(value)
        return Handle(one.tag, one.size, StoredValue(one.tag, one.size))

    async def submit(self, job: Job) -> str:
        """Run a job, once."""
        if job.key in self.project.ends:
            self._ended.append(job.key)
            return job.key
        given = {n: getattr(v, "stored", v) for n, v in job.arguments.items()}
        for name, value in given.items():
            if isinstance(value, StoredValue):
                given[name] = copy.deepcopy(self.project.blobs[value.digest])
        value = self._spoil(len(self.project.ends), job.function(given))
        self.project.ends[job.key] = value
        self._ended.append(job.key)
        return job.key

    async def next(self, wait_s: float | None = None) -> JobEnd | None:  # noqa: ARG002 - a backend's
        """Return the ending that is oldest."""
        await asyncio.sleep(0)
        if not self._ended:
            return None
        key = self._ended.pop(0)
        value = self.project.ends[key] if self._waits else None
        return JobEnd(key, value, None, self.now())

    async def cancel(self, job_id: str) -> None:
        """Forget an ending."""
        self._ended = [key for key in self._ended if key != job_id]

    async def refuse(self, job_id: str, reason: str) -> None:  # noqa: ARG002 - a backend's
        """Note who is at fault."""
        self.refused.append(reason)

    async def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def serve_shards(
    folder: Path, count: int, project: FakeProject
) -> Iterator[tuple[ShardPlace, ...]]:
    """Serve shards in threads of this process; they know `project`."""
    services = [ShardService(folder / f"s{n}", "127.0.0.1:0") for n in range(count)]
    for service in services:
        service._project = cast("Project", project)

        def work(service: ShardService = service) -> None:
            with contextlib.suppress(OSError):  # the listener is closed
                service.run()

        threading.Thread(target=work, daemon=True).start()
    try:
        yield tuple(service.place for service in services)
    finally:
        for service in services:
            service._listener.shutdown(socket.SHUT_RDWR)
            service.close()


def softmax_loss(parameters: Any, x: Any, y: Any) -> Any:
    z = x @ parameters["w"] + parameters["b"]
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    slope = np.exp(logs)
    slope[np.arange(len(y)), y] -= 1.0
    total = -float(logs[np.arange(len(y)), y].sum())
    return total, {"w": x.T @ slope, "b": slope.sum(axis=0)}


WIDTH = 1 << 19  # entries of the valley's parameters


def make_valley() -> Arrays:
    """Return the start of a wide model: 4 MiB of parameters, half of it at each of two."""
    return {"w": np.linspace(-1.0, 1.0, WIDTH)}


def make_bowl_parts() -> list[Part]:
    """Return three parts of few numbers: places in the valley, and depths."""
    rng = np.random.default_rng(5)
    sizes = (5, 4, 1)
    return [Part(rng.integers(0, WIDTH, n), rng.normal(size=n)) for n in sizes]


def valley(parameters: Any, x: Any, y: Any) -> Any:
    """Return the loss of samples that each pull at one entry, and at its neighbours."""
    w = parameters["w"]
    slope = np.zeros(len(w))
    total = 0.0
    for place, depth in zip(x.tolist(), y.tolist(), strict=True):
        near = slice(max(0, place - 1000), place + 1000)
        rest = w[near] - depth
        total += float(rest @ rest)
        slope[near] += 2.0 * rest
    return total, {"w": slope}
