"""What exchanges cost as tasks: a pipeline, local steps and shards against data parallel.

Gate, log, jails and two volunteers are real. *A group* is as many samples as a task takes;
data parallel makes one step of two of them, local steps eight steps of one in a task. Bytes
of hosts are by the server's own records: a sticky file counts once a host, what a result
needs besides each time, and results as they were uploaded. The trainer's are what it put and
what came to it. One machine: seconds are those of two cores that everybody shares. In a
cell, two processes of this machine make the same exchange on gloo.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import stoilo
from bench.rows import Row
from stoilo.client.session import Journal
from stoilo.learn import (
    FedAvgTrainer,
    LocalWork,
    Part,
    Sgd,
    StagedSettings,
    StagedTrainer,
    SynchronousSettings,
    SynchronousTrainer,
    Trainer,
    TrainerOptions,
    vocabulary_loss,
)
from stoilo.learn.backends import Handle, JobEnd
from stoilo.learn.backends.server import ServerBackend
from stoilo.learn.methods.federated import FederatedSettings
from stoilo.testing.deployment import Deployment
from tests.support.ranks import run_ranks

HOSTS = 2
RATE = 0.01
WAYS = ("data parallel", "local steps", "pipeline")
WHAT = ("seconds", "MB down to hosts", "MB up from hosts", "MB to and from the trainer")


@dataclass(frozen=True, slots=True)
class Case:
    """A model of three layers, and how many samples a task takes."""

    name: str
    width: int  # of both hidden layers
    group: int
    groups: int = 16
    steps: int = 8  # of local work


CASES = (
    Case("large weights, small activations", 1024, 64),
    Case("small weights, large activations", 256, 1024),
)
VOCABULARY = {"words": 16_384, "width": 64, "tokens": 512, "shards": 4}


class Counted(ServerBackend):
    """A server's backend that counts the trainer's own bytes, each digest once."""

    def __init__(self, connection: stoilo.Connection) -> None:
        super().__init__(connection)
        self.moved: dict[str, int] = {}
        self.came = 0

    async def put(self, value: object) -> Handle:
        """Count what is uploaded."""
        handle = await super().put(value)
        self.moved[handle.digest] = handle.size
        return handle

    async def next(self, wait_s: float | None = None) -> JobEnd | None:
        """Count what comes; of what stays, a size is known if it came and was put back."""
        ending = await super().next(wait_s)
        if ending is not None and isinstance(ending.value, Handle):
            self.came += ending.value.size
            self.moved[ending.value.digest] = ending.value.size
        elif ending is not None and isinstance(ending.value, dict):
            self.came += sum(a.nbytes for a in ending.value["tensors"].values())
        return ending


def make_layers(width: int, seed: int) -> list[nn.Module]:
    """Return the three stages."""
    torch.manual_seed(seed)
    first = nn.Sequential(nn.Linear(64, width), nn.Tanh())
    return [
        first,
        nn.Sequential(nn.Linear(width, width), nn.Tanh()),
        nn.Linear(width, 10),
    ]


def make_parts(case: Case) -> list[Part]:
    """Return one part a host, with samples for all groups."""
    rng = np.random.default_rng(0)
    each = case.group * case.groups // HOSTS
    return [
        Part(rng.normal(size=(each, 64)).astype(np.float32), rng.integers(0, 10, each))
        for _ in range(HOSTS)
    ]


def make_trainer(way: str, case: Case, place: ServerBackend, seed: int) -> Trainer:
    """Return a trainer that goes over all groups once, one way or the other."""
    layers, parts = make_layers(case.width, seed), make_parts(case)
    loss, whole = nn.functional.cross_entropy, nn.Sequential(*layers)
    options = TrainerOptions(clip=None, home_checks=0.0)
    if way == "pipeline":
        staged = StagedSettings(group=case.group)
        about = (place, layers, parts, staged, Sgd(RATE))
        return StagedTrainer(*about, loss=loss, options=options)
    common: dict[str, Any] = {"loss": loss, "options": options}
    if way == "data parallel":
        plain = SynchronousSettings(1, block=case.group)
        return SynchronousTrainer(place, whole, parts, plain, Sgd(RATE), **common)
    local = LocalWork(RATE, batch=case.group, steps=case.steps)
    rounds = FederatedSettings(case.groups // (HOSTS * case.steps), local)
    return FedAvgTrainer(place, whole, parts, rounds, **common)


# Who got which file for what: a sticky one is fetched once a host, others for each result.
FETCHED = """
    select r.host_id, case n.sticky when 1 then '' else r.name end, f.digest, f.size
    from engine_result r join engine_workunit_file n on n.workunit_id = r.workunit_id
    join engine_file f on f.digest = n.digest where r.host_id > 0
"""
SENT = "select name, upload_size from engine_result where upload_size > 0"


class Hosts:
    """What hosts fetch and upload while this is entered, by the engine's records.

    Those of what has ended are soon purged, so they are read again and again.
    """

    def __init__(self, data: Path) -> None:
        self._file = data / "engine" / "engine.sqlite"
        self._down: dict[tuple[object, ...], int] = {}
        self._up: dict[str, int] = {}

    def read(self) -> tuple[int, int]:
        """Read once more; return bytes down and up so far, since it was made."""
        with sqlite3.connect(f"file:{self._file}?mode=ro", uri=True) as found:
            self._down |= {tuple(row[:3]): row[3] for row in found.execute(FETCHED)}
            self._up |= dict(found.execute(SENT))
        return sum(self._down.values()), sum(self._up.values())

    async def _follow(self) -> None:
        while True:
            await asyncio.to_thread(self.read)
            await asyncio.sleep(0.1)

    async def __aenter__(self) -> Self:
        self.read()
        self._work = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        await asyncio.wait([self._work])


async def measure_way(
    way: str, case: Case, conn: stoilo.Connection, hosts: Hosts
) -> list[float]:
    """Return what a group costs: see `WHAT`."""
    seed = 2 * WAYS.index(
        way
    )  # weights of its own each time: no host has a version yet
    async with make_trainer(way, case, ServerBackend(conn), seed) as trainer:
        await trainer.train()  # data travels once, zygotes start
    place, before, began = Counted(conn), hosts.read(), time.perf_counter()
    async with place, make_trainer(way, case, place, seed + 1) as trainer:
        await trainer.train()
    took, after = time.perf_counter() - began, hosts.read()
    down, up = (b - a for a, b in zip(before, after, strict=True))
    moved = place.came + sum(place.moved.values())
    return [one / case.groups for one in (took, down / 1e6, up / 1e6, moved / 1e6)]


async def measure_case(case: Case, conn: stoilo.Connection, hosts: Hosts) -> list[Row]:
    """Return what a group costs, way by way, against data parallel."""
    rows, plain = list[Row](), list[float]()
    for way in WAYS:
        found = await measure_way(way, case, conn, hosts)
        plain = plain or found
        for what, ours, peer in zip(WHAT, found, plain, strict=True):
            name = f"{case.name}, {way}: {what} a group"
            unit = what.split()[0].replace("seconds", "s")
            rows.append(Row(name, ours, unit, WAYS[0], peer, ours / peer, "of it"))
    return rows


async def measure_shards(
    conn: stoilo.Connection,
    hosts: Hosts,
    words: int,
    width: int,
    tokens: int,
    shards: int,
) -> list[Row]:
    """Return what comes back from a split vocabulary, against its logits; and the time."""
    rng = np.random.default_rng(0)
    w, b = rng.normal(size=(words, width)), np.zeros(words)
    pairs = zip(np.array_split(w, shards), np.array_split(b, shards), strict=True)
    cut = [{"weight": some, "bias": theirs} for some, theirs in pairs]
    x, y = rng.normal(size=(tokens, width)), rng.integers(0, words, tokens)
    before, began = hosts.read()[1], time.perf_counter()
    await vocabulary_loss(conn, x, y, cut, options=TrainerOptions(tasks=1))
    took, up = time.perf_counter() - began, (hosts.read()[1] - before) / 1e6
    title = f"softmax over {words:,} words in {shards} shards, {tokens} tokens, loss and slope"
    logits = tokens * words * 8 / 1e6
    return [
        Row(f"{title}: up", up, "MB", "the logits' size", logits, up / logits, "of it"),
        Row(f"{title}: time", took, "s"),
    ]


def exchange(
    rank: int, size: int, weights: int, numbers: int, rounds: int
) -> list[float]:
    """Return how long an all-reduce and a way there and back take in a cell, medians, s."""
    del size
    whole, part = torch.ones(weights), torch.ones(numbers)
    found: list[list[float]] = [[], []]
    for _ in range(rounds):
        began = time.perf_counter()
        dist.all_reduce(whole)
        between = time.perf_counter()
        for sender in (0, 1):
            if rank == sender:
                dist.send(part, 1 - sender)
            else:
                dist.recv(part, sender)
        found[0].append(between - began)
        found[1].append(time.perf_counter() - between)
    return [statistics.median(times) for times in found]


def measure_cell(case: Case, rounds: int) -> list[Row]:
    """Return what the same exchanges take between two processes on gloo."""
    weights = sum(
        p.numel() for one in make_layers(case.width, 0) for p in one.parameters()
    )
    found = run_ranks(exchange, 2, weights, case.group * case.width, rounds)
    reduced, passed = map(max, zip(*found, strict=True))
    return [
        Row(f"{case.name}, in a cell: all-reduce of the weights", reduced, "s"),
        Row(
            f"{case.name}, in a cell: one activation there, its slope back", passed, "s"
        ),
    ]


def measure(
    cases: Sequence[Case] = CASES,
    vocabulary: Mapping[str, int] = VOCABULARY,
    rounds: int = 50,
) -> list[Row]:
    """Start a deployment and return all rows."""

    async def all_rows(address: str, data: Path, journal: Journal) -> list[Row]:
        rows = list[Row]()
        connecting = stoilo.connect(address, journal=journal)
        async with connecting as conn, Hosts(data) as hosts:
            for case in cases:
                rows += await measure_case(case, conn, hosts)
            return rows + await measure_shards(conn, hosts, **vocabulary)

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Deployment(place / "data", volunteers=HOSTS) as running:
            assert running.line is not None
            journal, address = Journal(place / "journal"), running.line.connection
            rows = asyncio.run(all_rows(address, place / "data", journal))
    return rows + [row for case in cases for row in measure_cell(case, rounds)]
