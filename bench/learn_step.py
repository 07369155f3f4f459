"""Processor time of one DPBGD step with three tasks, by who spends it.

The client is this process; the server with signer, gate and validators, and the volunteers
with their jails, are the processes below `stoilo up`: what they and their ended children
used is read from ``/proc`` before and after the steps, so idle time between them counts
too. The peer is the same step before captures were kept, tasks were submitted together and
waited for by one stream (`BEFORE_MS`: means of two runs at d15ed444, in turn with today's,
on a quiet machine of two cores: compare them on such a one only). What one
`submit()` costs the client is against the same one with its source captured anew. The large
network again with fewer bytes (`WAYS`): processor time and bytes, against versions and
gradients as they are in the same run. Bytes down are of the blobs that a host fetches which
has those before.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import stoilo
from bench.learn_jail import VOLUNTEERS, load_tensors, make_network
from bench.rows import Row
from stoilo.client.capture.known import Captures
from stoilo.client.session import Journal
from stoilo.learn import Delta, DPBGDOptions, DPBGDTrainer, TopK
from stoilo.learn.core.models import TorchModel
from stoilo.learn.core.tensors import forms_of
from stoilo.learn.driver.acceptance import Expectation
from stoilo.testing.deployment import Deployment
from tests.support.descendants import descendants

STEPS = 10
WIDTHS = (42, 2048)  # hidden units of both layers: 5 thousand, 4.35 million weights
SIDES = ("client", "server", "volunteers")
# Processor time of a step, ms, by hidden units: client, server, volunteers
BEFORE_MS = {42: (232.0, 396.0, 145.0), 2048: (799.0, 1819.0, 1096.0)}
Way = dict[str, Any]  # options of a trainer
WAYS: dict[str, Way] = {
    "as they are": {},
    "bfloat16": {"transport": "bfloat16", "downlink": "bfloat16"},
    "int8, deltas down": {"transport": "int8", "downlink": Delta()},
    "int8, top 1 % down": {"transport": "int8", "downlink": Delta(TopK(), every=32)},
}
MOST_SUBMIT_MS = 5.0
SUBMITS = 20
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Used = dict[str, float]  # side → processor time, s


def read_used(pid: int) -> float:
    """Return what a process and its ended children used, s; 0 for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0.0
    return sum(map(int, text.rpartition(")")[2].split()[11:15])) * TICK_S


def is_volunteer(pid: int) -> bool:
    """Whether a process is a volunteer's main one."""
    try:
        return b"stoilo.executor.volunteer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def read_sides(server: int) -> Used:
    """Return what each side has used so far, s."""
    below = set(descendants(server))
    homes = {pid for pid in below if is_volunteer(pid)}
    theirs = homes.union(*map(descendants, homes))
    return {
        "client": time.process_time(),
        "server": sum(map(read_used, (below - theirs) | {server})),
        "volunteers": sum(map(read_used, theirs)),
    }


async def use_a_step(
    conn: stoilo.Connection, server: int, width: int, steps: int, how: Way | None = None
) -> tuple[Used, float, tuple[float, float]]:
    """Return what each side uses in a step, s, how long it takes, s, and bytes down and up."""
    x, y = load_tensors()
    trainer = DPBGDTrainer(
        conn, make_network(width), nn.functional.cross_entropy, torch.optim.SGD,
        {"lr": 0.1}, (x.numpy(), y.numpy()),
        options=DPBGDOptions(tasks=VOLUNTEERS, **(how or {})),
    )  # fmt: skip
    times = []
    async with trainer:
        for _ in range(2):  # parts travel once, zygotes start
            await trainer.train_epoch()
        tally = trainer.run.tally
        down, up = tally.sent_bytes, tally.received_bytes
        before = read_sides(server)
        for _ in range(steps):
            began = time.perf_counter()
            await trainer.train_epoch()
            times.append(time.perf_counter() - began)
        after = read_sides(server)
    used = {side: (after[side] - before[side]) / steps for side in SIDES}
    down, up = tally.sent_bytes - down, tally.received_bytes - up
    return used, statistics.median(times), (down / steps, up / steps)


def make_rows(width: int, used: Used, took: float) -> list[Row]:
    """Return a row for each side, one for all, and one for the time a step takes."""
    weights = sum(p.numel() for p in make_network(width).parameters())
    title = f"DPBGD step, {VOLUNTEERS} tasks, {weights:,} weights"
    before = BEFORE_MS.get(width, ())
    now = [used[side] * 1e3 for side in SIDES]
    rows = [
        _compared(f"{title}: processor time, {who}", ms, then)
        for who, ms, then in zip(
            (*SIDES, "all"),
            (*now, sum(now)),
            (*before, sum(before)) if before else (None,) * 4,
            strict=True,
        )
    ]
    return [*rows, Row(f"{title}: time", took * 1e3, "ms")]


def _compared(name: str, ms: float, before: float | None) -> Row:
    if before is None:
        return Row(name, ms, "ms")
    return Row(name, ms, "ms", "before", before, ms / before, "of before")


async def compare_ways(
    conn: stoilo.Connection, server: int, width: int, steps: int
) -> list[Row]:
    """Return processor time and bytes of a step, by how arrays travel."""
    title, plain, rows = f"DPBGD step, {width} hidden units", list[float](), list[Row]()
    for name, how in WAYS.items():
        used, _, (down, up) = await use_a_step(conn, server, width, steps, how)
        found = [sum(used.values()) * 1e3, down / 1e6, up / 1e6]
        plain = plain or found
        for what, unit, ours, peer in zip(
            ("processor time", "bytes down", "bytes up"), ("ms", "MB", "MB"),
            found, plain, strict=True,
        ):  # fmt: skip
            one = f"{title}, {name}: {what}"
            rows.append(Row(one, ours, unit, "as they are", peer, ours / peer, "of it"))
    return rows


async def use_a_submit(conn: stoilo.Connection) -> Row:
    """Return what one `submit()` of a kernel costs the client, cached and captured anew."""
    model = TorchModel(make_network(WIDTHS[0]), nn.functional.cross_entropy)
    forms, spent = forms_of(model.first().parameters), list[list[float]]()
    for _ in range(2):
        times = []
        for number in range(SUBMITS):
            if not spent:
                conn.session.captures = Captures()
            rule = Expectation(0, 1, forms, {}).validator()
            given = {**model.constants(), "number": number}
            began = time.process_time()
            task = conn.create_task(model.kernel("gradient"), given, rule)
            submitted = await task.submit()
            times.append((time.process_time() - began) * 1e3)
            await submitted.cancel()
        spent.append(times)
    anew, cached = map(statistics.median, spent)
    return Row("client: submit() of a cached kernel, processor time", cached, "ms",
               "captured anew", anew, cached / anew, "of anew",
               f"≤ {MOST_SUBMIT_MS:.0f} ms", cached <= MOST_SUBMIT_MS)  # fmt: skip


def measure(widths: Sequence[int] = WIDTHS, steps: int = STEPS) -> list[Row]:
    """Start a deployment and return all rows."""

    async def all_rows(address: str, server: int, journal: Journal) -> list[Row]:
        rows = []
        async with stoilo.connect(address, journal=journal) as conn:
            for width in widths:
                used, took, _ = await use_a_step(conn, server, width, steps)
                rows += make_rows(width, used, took)
            rows += await compare_ways(conn, server, widths[-1], steps)
            rows.append(await use_a_submit(conn))
        return rows

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Deployment(place / "data", volunteers=VOLUNTEERS) as running:
            assert running.line is not None
            journal = Journal(place / "journal")
            address = running.line.connection
            return asyncio.run(all_rows(address, running.pid, journal))
