"""Train in a folder and copy it before each change of a file: what a kill would leave.

    photographed.py FOLDER IMAGES
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from tests.support.trainings import make_run

FOLDER, IMAGES = Path(sys.argv[1]), Path(sys.argv[2])
CHANGES = {"open", "os.rename", "os.remove"}


def photograph(event, arguments):
    if event not in CHANGES or not str(arguments[0]).startswith(str(FOLDER)):
        return
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
        return
    events.append(event)
    shutil.copytree(FOLDER, IMAGES / f"{len(events):04d}")


def copied(event, arguments):
    """Look away while the copy itself opens files."""
    if not looking_away:
        looking_away.append(True)
        try:
            photograph(event, arguments)
        finally:
            looking_away.clear()


events, looking_away = [], []


async def train():
    async with make_run(FOLDER) as run, run.backend:
        sys.addaudithook(copied)
        await run.finish()


asyncio.run(train())
