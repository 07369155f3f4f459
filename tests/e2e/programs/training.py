"""Train at a server until the end: killed and started again by the test that runs it.

    training.py CONNECTION FOLDER HOLD

From HOLD updates on it waits to be killed; 0 for no such end.
"""

import asyncio
import sys
import time
from pathlib import Path

import stoilo
from stoilo.client.session import Journal
from stoilo.client.options import CreateOptions
from stoilo.learn.backends.server import ServerBackend
from tests.support.trainings import make_run

CONNECTION, FOLDER, HOLD = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
ONE_OF_FOUR = CreateOptions(1, 1, 4, 4, 1, delay_bound=90)
"""One copy; where a volunteer dies, another one 90 s after it got the first."""
CONNECT_S = 300.0  # a trainer may begin while the server is away


told = []


def squares(parameters, x, y):
    rest = x @ parameters["w"] - y
    return float((rest**2).sum()), {"w": 2 * x.T @ rest}


def hold(update, tally):
    told.append(update.key)
    while HOLD and len(told) >= HOLD:
        time.sleep(1)


async def train():
    journal = Journal(FOLDER.parent / "journal")
    async with stoilo.connect(CONNECTION, journal=journal, timeout=CONNECT_S) as conn:
        run = make_run(FOLDER, ServerBackend(conn, ONE_OF_FOUR), squares, hold)
        async with run.backend, run:
            await run.finish()


asyncio.run(train())
