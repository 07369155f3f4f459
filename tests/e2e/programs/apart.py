"""Coordinate a training whose vectors are elsewhere; say how much this process ever held.

    apart.py CONNECTION FOLDER PLANTED HOLD PLACE...

From HOLD updates on it waits to be killed; 0 for no such end. At the end it prints the most
bytes that Python and numpy allocated at a time since the first answer: modules are loaded then.
"""

import asyncio
import sys
import time
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np

import stoilo
from stoilo.client.session import Journal
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.methods.lbfgs import Rules
from stoilo.learn.methods.sandblaster import SandblasterSettings
from stoilo.learn.store.place import read_place
from stoilo.learn.store.vectors import Planted
from stoilo.learn.trainers.named import SandblasterTrainer
from stoilo.learn.trainers.options import TrainerOptions
from tests.support.apart import make_bowl_parts, valley

CONNECTION, FOLDER, PLANTED, HOLD = sys.argv[1:5]
PLACES = tuple(read_place(Path(one)) for one in sys.argv[5:])


async def train():
    planted = msgspec.json.decode(Path(PLANTED).read_bytes(), type=Planted)
    settings = SandblasterSettings(
        1, 1e-3, rules=Rules(iterations=3), places=PLACES, planted=planted
    )
    options = TrainerOptions(folder=Path(FOLDER), in_flight=2)
    stub = ArrayModel({"none": np.zeros(1)}, valley)
    parts = make_bowl_parts()
    journal = Journal(Path(FOLDER).with_suffix(".journal"))
    async with stoilo.connect(CONNECTION, journal=journal, timeout=60.0) as conn:
        trainer = SandblasterTrainer(conn, stub, parts, settings, options=options)
        async with trainer:
            number = 0
            async for _ in trainer:
                number += 1
                tracemalloc.start()
                print(number, flush=True)
                while int(HOLD) and number >= int(HOLD):
                    time.sleep(1)  # noqa: ASYNC251 - it is to be killed
    print("peak", tracemalloc.get_traced_memory()[1], flush=True)


asyncio.run(train())
