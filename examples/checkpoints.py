"""A training that ends in the middle, and another process that goes on with it.

With a folder, what has been reached is written after each answer: parameters, the
optimiser's state, which answers counted, which tasks are out.
"""

import tempfile
from pathlib import Path

import digits
from commandline import run

import stoilo
from stoilo import learn

SETTINGS = learn.DownpourSettings(passes=4, batch=40)
ANSWERS_BEFORE_THE_END = 40


async def main(conn: stoilo.Connection | None) -> None:
    """Train in two goes, and once in one go: the same answers count."""
    data = digits.load()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await begin(conn, data, folder)
        print("left behind:", list_files(folder))
        resumed = await go_on(conn, data, folder)
    right = digits.accuracy(resumed.model, *data.held_out)
    print(f"went on to {right:.1%} right, version {resumed.snapshot.version}")
    assert right > 0.9


def list_files(folder: Path) -> str:
    """Return what a folder holds, for a person."""
    return ", ".join(sorted(path.name for path in folder.iterdir()))


def make(conn, data, folder) -> learn.Trainer:
    """Return the trainer: the same one in both processes."""
    options = learn.TrainerOptions(tasks=4, folder=folder)
    return learn.DownpourTrainer(
        conn, digits.network(), data.train, SETTINGS, options=options
    )


async def begin(conn, data, folder) -> None:
    """Train for a while, then stop as at the end of a notebook's kernel."""
    async with make(conn, data, folder) as trainer:
        async for update in trainer:
            if update.snapshot.version == ANSWERS_BEFORE_THE_END:
                return


async def go_on(conn, data, folder) -> learn.Trained:
    """Train to the end from what the folder holds."""
    async with make(conn, data, folder) as trainer:
        trained = await trainer.train()
    keys = [update.key for update in trained.history.updates if update.applied]
    assert len(keys) == len(set(keys))
    return trained


if __name__ == "__main__":
    run(main, __doc__)
