"""All-reduce: our schedules in numpy over sockets against gloo's own, in one run, in turn.

Processes of this machine, so loopback and shared processors. Beside the rows a plot is
written: how many vectors' worth each rank sends, by number of ranks, and the published
upper limit 2(p-1)/p of it, which no all-reduce by sums and copies goes below. The last rows
are steps of `Data`: its buckets, and its slices, against one sum at backward's end.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from bench.rows import Row
from stoilo.core.listen import Address, listen
from stoilo.learn.cells.data import Data
from stoilo.learn.cells.links import Links
from stoilo.learn.cells.reduce import SCHEDULES, all_reduce, join
from stoilo.learn.core.picture import draw
from tests.support.ranks import run_ranks

CASES = ((2, 45.0), (4, 4.0))  # ranks, MB of float32
RUNS = 7
LENGTH = 100_000
WIDE, LAYERS, ROWS = 1000, 8, 256  # of a step: 32 MB of float32
STEPS = {
    "buckets of 4 MiB": Data(),
    "slices": Data(shard=True),
    "one sum at the end": Data(bucket_bytes=1 << 40),
}
PLOT = Path(__file__).parent / "out" / "all_reduce.svg"


def time_all(rank: int, size: int, megabytes: float, runs: int) -> dict[str, float]:
    """Return each way's median until all ranks are done, s."""
    values = np.zeros(int(megabytes * 1e6 / 4), np.float32)
    shared = torch.from_numpy(values)
    with listen("127.0.0.1:0") as listener:
        ports = torch.zeros(size, dtype=torch.int64)
        ports[rank] = listener.getsockname()[1]
        dist.all_reduce(ports)
        peers = [Address("127.0.0.1", port) for port in ports.tolist()]
        with join(rank, peers, listener, b"bench", 30.0) as link:
            ways: dict[str, Callable[[], object]] = {
                kind: partial(all_reduce, values, make(rank, size), link)
                for kind, make in SCHEDULES.items()
            }
            ways["gloo"] = partial(dist.all_reduce, shared)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(runs + 1):
                for name, way in ways.items():
                    values[:] = 1.0
                    dist.barrier()
                    began = time.perf_counter()
                    way()
                    dist.barrier()
                    times[name].append(time.perf_counter() - began)
                    assert values[0] == values[-1] == size
    return {name: statistics.median(took[1:]) for name, took in times.items()}


def time_steps(rank: int, size: int, runs: int) -> dict[str, float]:
    """Return each layout's median for one gradient, s."""
    model = nn.Sequential(*[nn.Linear(WIDE, WIDE) for _ in range(LAYERS)])
    start = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    rows = np.ones((ROWS, WIDE), np.float32)
    order = {
        "model": model, "loss": nn.functional.mse_loss, "reduction": "mean",
        "parameters": start, "buffers": {}, "data": {"x": rows, "y": rows},
        "rows": None, "settings": {}, "version": 0,
    }  # fmt: skip
    group = dist.group.WORLD
    assert group is not None
    times: dict[str, list[float]] = {name: [] for name in STEPS}
    for _ in range(runs + 1):
        for name, layout in STEPS.items():
            dist.barrier()
            began = time.perf_counter()
            layout.execute("gradient", order, Links(rank, size, group, 60.0))
            dist.barrier()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(took[1:]) for name, took in times.items()}


def plot_volume(most: int = 16) -> str:
    """Return an SVG of what the busiest rank sends, in vectors, by number of ranks."""
    ranks = range(2, most + 1)
    curves = {"limit": [(p, 2 * (p - 1) / p) for p in ranks]}
    for kind, make in SCHEDULES.items():
        curves[kind] = [
            (p, max(make(r, p).sent(LENGTH) for r in range(p)) / LENGTH) for p in ranks
        ]
    return draw(curves, across="ranks")


def measure(cases: Sequence[tuple[int, float]] = CASES, runs: int = RUNS) -> list[Row]:
    """Return a row for each schedule and size; write the plot."""
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.write_text(plot_volume(), encoding="utf-8")
    rows = []
    for size, megabytes in cases:
        told = run_ranks(time_all, size, megabytes, runs, limit_s=120)[0]
        peer = told.pop("gloo") * 1e3
        for kind, took in told.items():
            name = f"all-reduce, {kind}: {megabytes:g} MB, {size} ranks"
            ours = took * 1e3
            rows.append(Row(name, ours, "ms", "gloo", peer, ours / peer, "of gloo"))
    steps = run_ranks(time_steps, 2, runs, limit_s=120)[0]
    *ours_by_name, (last, end_s) = steps.items()
    for kind, took in ours_by_name:
        name, of = f"gradient of {LAYERS} layers, 2 ranks: {kind}", took / end_s
        rows.append(Row(name, took * 1e3, "ms", last, end_s * 1e3, of, "ours/peer"))
    return rows
