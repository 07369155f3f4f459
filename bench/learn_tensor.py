"""A transformer's step split over two processes against plain torch, and what links allow.

The step is of four blocks, forward and backward, of one thread a process, taken in turn. Two
processes share this machine's two cores with whatever else runs: the processor time of a
member says what is left where each has a core of its own. The same
exchanges are timed alone: with their bytes and the plain step they foretell the split one,
which shows how far the model of communication goes. Weak scaling is the width's: twice the
heads and hidden units for two.

The published 77 and 74 % of weak scaling (Shoeybi et al. 2019, on up to 8 and 512 GPUs) have
the model's figure beside them. Sizes there are the paper's, checked against its numbers of
weights; a GPU's speed follows from its total; link speeds are the machines' nominal ones, from
memory. The model knows exchanges only: what it leaves to the paper's figure is smaller
matrices, latency and what each GPU does as a whole.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from bench.rows import Row
from stoilo.learn.cells.layers import Region
from stoilo.learn.cells.tensor import Split, split
from tests.support.ranks import run_ranks
from tests.support.transformers import Block, plan_block

BATCH, LENGTH, WIDTH, UNIT, BLOCKS, STEPS = 8, 64, 256, 32, 4, 15
HEADS = WIDTH // UNIT
EXCHANGES = 4  # a block: two forward, two backward
SEPARATE = 2  # more, because keys and values are layers of their own


@dataclass(frozen=True)
class Scale:
    """A transformer's training on some GPUs, and what these do.

    Attributes:
        layers, width, batch, length, words: of the model; the batch is a tensor group's.
        members: of a tensor group.
        replicas: of that group.
        speed: of one GPU alone, FLOP/s.
        link, wire: between GPUs of a group; each GPU's share of what joins groups, bytes/s.
        exchanges: of activations a layer; two more where the forward pass is repeated.
    """

    layers: int
    width: int
    members: int
    replicas: int = 1
    batch: int = 8
    length: int = 1024
    words: int = 51_200
    speed: float = 39e12
    link: float = 150e9
    wire: float = 100e9 / 16
    exchanges: int = EXCHANGES + 2

    @property
    def weights(self) -> float:
        """Matrices' entries."""
        return 12.0 * self.layers * self.width**2 + self.words * self.width

    @property
    def compute_s(self) -> float:
        """Forward twice and backward once, on each GPU (Narayanan et al. 2021, formula 3)."""
        rest = 1 + self.length / (6 * self.width)
        rest += self.words / (16 * self.layers * self.width)
        work = 96.0 * self.batch * self.length * self.layers * self.width**2 * rest
        return work / self.members / self.speed

    @property
    def tensor_s(self) -> float:
        """Exchanges of half-precision activations, 2(p-1)/p of each sent."""
        size = 2.0 * self.batch * self.length * self.width
        share = 2 * (self.members - 1) / self.members
        return self.layers * self.exchanges * share * size / self.link

    @property
    def data_s(self) -> float:
        """One exchange of half-precision gradients among the replicas."""
        size = 2.0 * self.weights / self.members
        return 2 * (self.replicas - 1) / self.replicas * size / self.wire

    def efficiency(self, *, overlapped: bool) -> float:
        """Return compute's share of a step; gradients travel beside it, or after it."""
        after = (
            max(0.0, self.data_s - self.compute_s / 2) if overlapped else self.data_s
        )
        return self.compute_s / (self.compute_s + self.tensor_s + after)


ONE, MANY = Scale(72, 3072, 8), Scale(72, 3072, 8, replicas=64)
PAPER = (
    ("8 GPUs, tensor", ONE, True, 0.77),
    ("512 GPUs, tensor and data, gradients beside backward", MANY, True, 0.74),
    ("512 GPUs, tensor and data, gradients after it", MANY, False, 0.74),
)


def make_stack(heads: int, inner: int) -> nn.Sequential:
    """Return some blocks."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(Block(WIDTH, heads, heads, inner, unit=UNIT) for _ in range(BLOCKS))
    )


def make_plan(heads: int) -> dict[str, str | Split]:
    """Return the plan of the blocks."""
    found: dict[str, str | Split] = {}
    for block in range(BLOCKS):
        found |= plan_block(heads, f"{block}.", unit=UNIT)
    return found


def take_step(stack: nn.Module, x: torch.Tensor) -> None:
    """Run forward and backward once."""
    stack.zero_grad()
    stack(x).square().mean().backward()


def race(rank: int, size: int, steps: int) -> dict[str, float]:
    """Return the median seconds of each contender, in turn; a member waits for single ones."""
    region, x = (
        Region(rank, size),
        torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True),
    )
    plan, wide = make_plan(HEADS), make_plan(size * HEADS)
    plain = make_stack(HEADS, 4 * WIDTH)
    ours = copy.deepcopy(plain)
    split(ours, plan, region)
    wider = make_stack(size * HEADS, size * 4 * WIDTH)
    split(wider, wide, region)
    activations = x.detach().clone()

    def exchange() -> None:
        for _ in range(BLOCKS * (EXCHANGES + SEPARATE)):
            dist.all_reduce(activations)

    def alone() -> None:
        if rank == 0:
            take_step(plain, x)

    return _time_in_turn(
        {
            "plain": alone,
            "split": lambda: take_step(ours, x),
            "wider": lambda: take_step(wider, x),
            "exchanges": exchange,
        },
        steps,
    )


def _time_in_turn(work: dict[str, Callable[[], None]], steps: int) -> dict[str, float]:
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(steps + 1):
        for name, one in work.items():
            dist.barrier()
            began, used = time.perf_counter(), time.process_time()
            one()
            times[name].append(time.perf_counter() - began)
            times[f"{name}, used"].append(time.process_time() - used)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def measure(steps: int = STEPS) -> list[Row]:
    """Return all rows."""
    raced = run_ranks(race, 2, steps, limit_s=300)[0]
    found = {name: seconds * 1e3 for name, seconds in raced.items()}
    plain, ours, exchanges = found["plain"], found["split"], found["exchanges"]
    title = f"transformer step, {BLOCKS} blocks, width {WIDTH}, {BATCH * LENGTH} tokens"
    foretold = plain / 2 + exchanges
    scaled = 100 * plain / found["wider"]
    foretold_scaled = 100 * plain / (plain + exchanges)
    rows = [
        Row(f"{title}: two members", ours, "ms", "plain torch, one thread", plain,
            ours / plain, "of plain (0.5: ideal)"),
        Row(f"{title}: two members", ours, "ms", "half of plain and its exchanges",
            foretold, ours / foretold, "of that"),
        Row(f"{title}: processor time of a member", found["split, used"], "ms",
            "plain torch", found["plain, used"], found["split, used"] / found["plain, used"],
            "of plain (0.5: ideal)"),
        Row(f"{title}: its exchanges alone", exchanges, "ms"),
        Row("weak scaling, two members with twice the heads and hidden units", scaled, "%",
            "by its exchanges", foretold_scaled, scaled / foretold_scaled, "of that"),
    ]  # fmt: skip
    return rows + [
        Row(f"weak scaling of {scale.weights / 1e9:.1f} billion weights, {name}: by exchanges",
            100 * model, "%", "published", 100 * paper, model / paper, "of it")
        for name, scale, overlapped, paper in PAPER
        for model in [scale.efficiency(overlapped=overlapped)]
    ]  # fmt: skip
