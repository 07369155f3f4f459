"""Processor time of one DPBGD step with three tasks, by who spends it.

The client is this process; the server with signer, gate and validators, and the volunteers
with their jails, are the processes below `stoilo up`: what they and their ended children
used is read from ``/proc`` before and after the steps, so idle time between them counts
too. The peer is the step as it was before (one capture a task, a poll a task), measured
on a machine of two cores: see `BEFORE_MS`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import stoilo
from bench.learn_jail import VOLUNTEERS, load_tensors, make_network
from bench.rows import Row
from stoilo.client.session import Journal
from stoilo.learn import DPBGDOptions, DPBGDTrainer
from stoilo.testing.deployment import Deployment
from tests.support.descendants import descendants

STEPS = 10
WIDTHS = (42, 2048)  # hidden units of both layers: 5 thousand, 4.35 million weights
SIDES = ("client", "server", "volunteers")
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
    conn: stoilo.Connection, server: int, width: int, steps: int
) -> tuple[Used, float]:
    """Return what each side uses in a step, s, and how long a step takes, s."""
    x, y = load_tensors()
    trainer = DPBGDTrainer(
        conn, make_network(width), nn.functional.cross_entropy, torch.optim.SGD,
        {"lr": 0.1}, (x.numpy(), y.numpy()),
        options=DPBGDOptions(tasks=VOLUNTEERS),
    )  # fmt: skip
    times = []
    async with trainer:
        for _ in range(2):  # parts travel once, zygotes start
            await trainer.train_epoch()
        before = read_sides(server)
        for _ in range(steps):
            began = time.perf_counter()
            await trainer.train_epoch()
            times.append(time.perf_counter() - began)
        after = read_sides(server)
    used = {side: (after[side] - before[side]) / steps for side in SIDES}
    return used, statistics.median(times)


def make_rows(weights: int, used: Used, took: float) -> list[Row]:
    """Return a row for each side, one for all, and one for the time a step takes."""
    title = f"DPBGD step, {VOLUNTEERS} tasks, {weights:,} weights"
    parts = [
        Row(f"{title}: processor time, {side}", used[side] * 1e3, "ms")
        for side in SIDES
    ]
    whole = Row(f"{title}: processor time, all", sum(used.values()) * 1e3, "ms")
    return [*parts, whole, Row(f"{title}: time", took * 1e3, "ms")]


def measure(widths: Sequence[int] = WIDTHS, steps: int = STEPS) -> list[Row]:
    """Start a deployment and return all rows."""

    async def all_rows(address: str, server: int, journal: Journal) -> list[Row]:
        rows = []
        async with stoilo.connect(address, journal=journal) as conn:
            for width in widths:
                used, took = await use_a_step(conn, server, width, steps)
                weights = sum(p.numel() for p in make_network(width).parameters())
                rows += make_rows(weights, used, took)
        return rows

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Deployment(place / "data", volunteers=VOLUNTEERS) as running:
            assert running.line is not None
            journal = Journal(place / "journal")
            address = running.line.connection
            return asyncio.run(all_rows(address, running.pid, journal))
