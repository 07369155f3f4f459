"""How busy a pipeline of four stages is: ours without flush, and torch's own schedules.

Four processes share this machine's few cores, so their layers *sleep* for as long as they
would compute: a forward 40 ms a stage, a backward 80 ms. Utilisation is that time over all
that passed at the four. Updates are made as each schedule makes them: without flush one a
batch, with flush one for each eight micro-batches.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.rows import Row
from stoilo.learn.cells.links import Links
from stoilo.learn.cells.pipeline import Pipeline
from stoilo.learn.cells.timeline import Span
from stoilo.learn.core.models import make_shape, read_buffers, read_trained

STAGES, LAYERS = 4, 8
FORWARD_S, BACKWARD_S = 0.020, 0.040  # of a layer; a stage has two
BATCHES, FLUSH, ROUNDS = 128, 8, 4
LIMIT_S = 120.0


# ruff: noqa: ANN401 - what torch hands over


SLEPT = [0.0]  # in this process, s


def sleep(seconds: float) -> None:
    """Sleep, and count how long."""
    began = time.perf_counter()
    time.sleep(seconds)
    SLEPT[0] += time.perf_counter() - began


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's
        sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:  # noqa: ARG004 - as above
        sleep(BACKWARD_S)
        return slopes[0]


class Sleeping(nn.Module):
    """A layer with one weight, which takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the input times the weight, later."""
        found: Tensor = _Sleep.apply(x * self.scale)
        return found


def loss(output: Tensor, y: Tensor) -> Tensor:
    """Return the mean square."""
    return ((output - y) ** 2).mean()


def run_ours(
    links: Links, batches: int, kernel: str = "local_steps", **options: Any
) -> list[Span]:
    """Train once; return who did what, at rank 0."""
    model = nn.Sequential(*[Sleeping() for _ in range(LAYERS)])
    pipeline = Pipeline((2, 4, 6), **options)
    samples = 2 * batches
    settings = {"steps": batches, "batch": 2, "rate": 1e-3, "seed": 1}
    arguments = {
        "model": make_shape(model),
        "loss": loss,
        "reduction": "mean",
        "parameters": read_trained(model),
        "buffers": read_buffers(model),
        "data": {"x": np.ones((samples, 4)), "y": np.zeros((samples, 4))},
        "rows": None,
        "settings": settings,
        "version": 0,
    }
    pipeline.execute(kernel, arguments, links)
    return pipeline.spans


def make_torch(name: str, links: Links) -> Callable[[], None]:
    """Return one step of a schedule of torch's: a flush, and an update."""
    from torch.distributed import pipelining  # noqa: PLC0415 - slow to import

    kind: Any = getattr(pipelining, name)
    chunks = 2 if name == "ScheduleInterleaved1F1B" else 1
    width = LAYERS // STAGES // chunks
    stages = [
        pipelining.PipelineStage(
            nn.Sequential(*[Sleeping() for _ in range(width)]),
            links.rank + chunk * STAGES,
            STAGES * chunks,
            torch.device("cpu"),
            group=links.group,
        )
        for chunk in range(chunks)
    ]
    schedule = kind(stages if chunks > 1 else stages[0], FLUSH, loss_fn=loss)
    weights = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    x, y = torch.ones(2 * FLUSH, 4), torch.zeros(2 * FLUSH, 4)

    def step() -> None:
        optimizer.zero_grad()
        first, last = links.rank == 0, links.rank == STAGES - 1
        given = (x,) if first else ()
        schedule.step(*given, target=y if last else None, losses=[] if last else None)
        optimizer.step()

    return step


def be_member(rank: int, store: str, count: int, rounds: int) -> dict[str, Any]:
    """Run everything as one of four, `count` batches; return the shares of time, by name."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=STAGES,
        timeout=timedelta(seconds=LIMIT_S),
    )
    group: Any = dist.group.WORLD
    links = Links(rank, STAGES, group, LIMIT_S)
    found: dict[str, Any] = {}

    def time_it(name: str, batches: int, work: Callable[[], object]) -> object:
        dist.barrier()
        SLEPT[0], began = 0.0, time.perf_counter()
        value = work()
        dist.barrier()
        took = time.perf_counter() - began
        slept = torch.tensor([SLEPT[0]])
        dist.all_reduce(slept)
        asked = batches * (FORWARD_S + BACKWARD_S) * LAYERS
        assert asked <= slept.item(), "not all was computed"
        found[name] = slept.item() / (took * STAGES)
        return value

    run_ours(links, STAGES)  # torch imports some of itself when it is first used
    spans: Any = time_it("1f1b", count, lambda: run_ours(links, count))
    found["spans"] = [[s.stage, s.kind, s.batch, s.begin_s, s.end_s] for s in spans]
    few = min(8, count)
    time_it("naive", few, lambda: run_ours(links, few, schedule="naive", micro=1))
    flushed = rounds * FLUSH
    time_it("flush", flushed, lambda: run_flushed(links, rounds))
    for name in ("ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B"):
        step = make_torch(name, links)
        step()  # forms of messages are found out in the first one
        time_it(name, flushed, lambda step=step: [step() for _ in range(rounds)])
    dist.destroy_process_group()
    return found


def run_flushed(links: Links, rounds: int) -> None:
    """Train with one update for each eight micro-batches."""
    for _ in range(rounds):
        run_ours(links, FLUSH, "gradient", micro=FLUSH)


def measure_all(batches: int, rounds: int) -> dict[str, Any]:
    """Run the four processes; return what rank 0 found."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        command = [sys.executable, "-m", "bench.learn_pipeline", store]
        members = [
            subprocess.Popen(
                [*command, *map(str, (rank, batches, rounds))], stdout=subprocess.PIPE
            )
            for rank in range(STAGES)
        ]
        told = [one.communicate(timeout=LIMIT_S)[0] for one in members]
    assert not any(one.returncode for one in members)
    found: dict[str, Any] = json.loads(told[0])
    return found


NAMES = {
    "1f1b": "no flush, {} batches",
    "naive": "one batch at a time",
    "flush": f"1F1B, flush of {FLUSH}",
}
PEERS = {
    "ScheduleGPipe": "torch's GPipe",
    "Schedule1F1B": "torch's 1F1B",
    "ScheduleInterleaved1F1B": "torch's interleaved",
}


def measure(batches: int = BATCHES, rounds: int = ROUNDS) -> list[Row]:
    """Return each schedule's utilisation beside torch's."""
    found = measure_all(batches, rounds)
    ideals = {"1f1b": batches / (batches + STAGES - 1), "naive": 1 / STAGES}
    rows = [
        Row(
            f"pipeline of {STAGES} stages that sleep: utilisation, {what.format(batches)}",
            found[name],
            "of the time",
            "schedule itself",
            ideal := ideals.get(name, FLUSH / (FLUSH + STAGES - 1)),
            found[name] / ideal,
            "of it",
            "≥ 0.93" if name == "1f1b" else "",
            found[name] >= 0.93 if name == "1f1b" else None,
        )
        for name, what in NAMES.items()
    ]
    return rows + [
        Row(
            f"pipeline of {STAGES} stages that sleep: no flush",
            found["1f1b"],
            "of the time",
            f"{what}, flush of {FLUSH}",
            found[peer],
            found["1f1b"] / found[peer],
            "times as busy",
        )
        for peer, what in PEERS.items()
    ]


if __name__ == "__main__":
    at, number, *sizes = sys.argv[1:]
    shares = be_member(int(number), at, *map(int, sizes))
    if number == "0":
        print(json.dumps(shares))
