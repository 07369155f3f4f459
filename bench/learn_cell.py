"""Time to a loss: a cell of four against one process, the same steps of DPBGD.

Both train the same regression from the same start on the same batches until an epoch's mean
loss is below `LOSS`; the first answer comes before the clock starts, so forming the group is
not in the time. The members share one machine's two processors, so a layer *sleeps* for as
long as computing a row would take: what is measured is what a cell adds to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bench.rows import Row
from stoilo import learn
from stoilo.learn.backends import Backend
from stoilo.learn.cells.cell import cell

MEMBERS = 4
LOSS = 0.8
SAMPLES, BATCH, RATE, MOST = 1024, 128, 0.5, 20
ROW_S = 1e-3  # that a row takes, forward
SEEDS = range(3)


class Slow(nn.Linear):
    """A linear layer that takes its time with each row."""

    def __init__(self, row_s: float) -> None:
        super().__init__(32, 10)
        self.row_s = row_s

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer gives, later."""
        time.sleep(self.row_s * len(x))
        return super().forward(x)


def loss(output: Tensor, y: Tensor) -> Tensor:
    """Return the researcher's own."""
    return nn.functional.cross_entropy(output, y)


async def reach(place: Backend, seed: int, row_s: float) -> tuple[float, int]:
    """Return the time to the loss, s, and how many epochs that were."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, 32, generator=generator)
    y = (x @ torch.randn(32, 10, generator=generator)).argmax(1)
    torch.manual_seed(seed)
    stop = learn.StopRule(target=LOSS, restore=False)
    train = partial(learn.fit, "dpbgd", Slow(row_s), loss=loss, batch=BATCH, rate=RATE)
    await train((x[:BATCH], y[:BATCH]), place, epochs=1)
    found = await train((x, y), place, epochs=MOST, stop=stop)
    return sum(one.seconds for one in found.epochs), len(found.epochs)


async def measure_both(seed: int, row_s: float) -> tuple[float, float, int]:
    """Return the times of a cell and of one process, s, and the cell's epochs."""
    async with cell(MEMBERS) as together, learn.LocalBackend(1) as alone:
        ours, epochs = await reach(together, seed, row_s)
        peer, _ = await reach(alone, seed, row_s)
    return ours, peer, epochs


def measure(seeds: Sequence[int] = SEEDS, row_s: float = ROW_S) -> list[Row]:
    """Return the mean over seeds."""
    found = [asyncio.run(measure_both(seed, row_s)) for seed in seeds]
    ours, peer, epochs = (sum(one) / len(found) for one in zip(*found, strict=True))
    return [
        Row(
            f"time to a loss of {LOSS}, {epochs:.1f} epochs: a cell of {MEMBERS}, layers sleep",
            ours,
            "s",
            "one process",
            peer,
            ours / peer,
            "ours/peer",
        )
    ]
