"""Train by logistic regression on shards of their own, from where FOLDER says, to the end.

Usage: training.py FOLDER MODE. Prints "ok" after each update, and at last the parameters.
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from stoilo import learn
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.store.server import ParameterServer
from stoilo.learn.trainers.trainer import TrainerOptions


def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 6))
    odds = 1 / (1 + np.exp(-x @ np.array([2.0, -1.0, 0.5, 0.0, 1.0, -0.5])))
    return x, (rng.random(120) < odds).astype(float)


async def main(folder, mode):
    server = ParameterServer.open(folder / "ps", 2, processes=True)
    settings = learn.LogisticSettings(mode, rounds=4, rate=0.02, block_bytes=16)
    options = TrainerOptions(tasks=4, clip=None, folder=folder / "run")
    trainer = learn.LogisticTrainer(
        LocalBackend(1), problem(), settings, server=server, options=options
    )
    async with trainer:
        async for _ in trainer:
            print("ok", flush=True)
    print(json.dumps(trainer.snapshot.parameters["theta"].tolist()), flush=True)
    server.close()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
