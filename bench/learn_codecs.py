"""What each codec costs and loses: bytes of an answer, and what the digits are learned to.

The same training each time (seven parts, one optimiser), the whole way from order to step on
threads of this process; the median of five seeds of the shuffling and of the draws.
"""

from __future__ import annotations

import asyncio
import statistics

from bench.digits import make_model, make_parts, score
from bench.rows import Row
from stoilo.learn import (
    Half,
    OneBit,
    PerLayer,
    PowerSGD,
    Quantised,
    Raw,
    Remainder,
    Sgd,
    SynchronousSettings,
    SynchronousTrainer,
    Ternary,
    TopK,
    TrainerOptions,
)
from stoilo.learn.driver.codecs import Transport

PARTS, BLOCK, SEEDS, EPOCHS = 7, 20, 5, 8
CODECS: dict[str, Transport] = {
    "raw": Raw(),
    "float16": Half("float16"),
    "bfloat16": Half(),
    "8 bits": Quantised(8),
    "4 bits": Quantised(4),
    "4 bits, l2": Quantised(4, "l2"),
    "2 bits (ternary)": Ternary(),
    "1 bit, drawn": Quantised(1),
    "1 bit, signs (biased)": OneBit(),
    "top 5 % (biased)": TopK(0.05),
    "top 5 % + ternary": Remainder(TopK(0.05), Ternary()),
    "PowerSGD, rank 2 (biased)": PowerSGD(),
    "PowerSGD, rank 2 + ternary": Remainder(PowerSGD(), Ternary()),
    "biases raw, else ternary": PerLayer((("[bc]", Raw()),), Ternary()),
}


def measure(epochs: int = EPOCHS, seeds: int = SEEDS) -> list[Row]:
    """Return size and accuracy of each codec beside those of raw arrays."""
    found = {name: _learn(codec, epochs, seeds) for name, codec in CODECS.items()}
    raw_bytes, raw_share = found["raw"]
    rows: list[Row] = []
    for name, (size, share) in found.items():
        ratio = raw_bytes / size
        what = f"codec {name}"
        rows.append(
            Row(
                f"{what}: an answer",
                size,
                "B",
                "raw",
                raw_bytes,
                ratio,
                "times smaller",
            )
        )
        of_raw = share / raw_share
        rows.append(
            Row(
                f"{what}: digits right",
                share,
                "share",
                "raw",
                raw_share,
                of_raw,
                "of raw",
            )
        )
    return rows


def _learn(codec: Transport, epochs: int, seeds: int) -> tuple[float, float]:
    """Return bytes of an answer and the share of held-out digits, medians of the seeds."""
    runs = [asyncio.run(_train(codec, epochs, seed)) for seed in range(seeds)]
    return (
        statistics.median(size for size, _ in runs),
        statistics.median(share for _, share in runs),
    )


async def _train(codec: Transport, epochs: int, seed: int) -> tuple[float, float]:
    settings = SynchronousSettings(epochs, block=BLOCK, seed=seed)
    trainer = SynchronousTrainer(
        None,
        make_model(),
        make_parts(PARTS),
        settings,
        Sgd(0.5),
        options=TrainerOptions(transport=codec),
    )
    async with trainer:
        trained = await trainer.train()
    answers = len(trained.history.updates)
    size = trained.tally.received_bytes / answers
    return size, score(trained.snapshot.parameters)
