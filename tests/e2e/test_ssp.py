"""SSP through gate, log and jail: how much is done while one part's task stalls.

Nothing is timed: what is counted is who had to wait for the part that stalls. The task
sleeps in its jail, as in ``bench/learn_ssp.py``.
"""

import asyncio

import numpy as np
import pytest

import stoilo
from bench.learn_ssp import make_sleeping_loss
from stoilo.client.session import Journal
from stoilo.learn import (
    ArrayModel,
    Part,
    Sgd,
    SspSettings,
    SspTrainer,
    TrainerOptions,
)
from stoilo.testing.deployment import Deployment

PARTS, EPOCHS, STALL_S = 3, 6, 20.0
DELAYS = [[STALL_S] + [0.0] * EPOCHS, *[[0.0] * (EPOCHS + 1)] * (PARTS - 1)]


def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4))
    y = (x[:, 0] > 0).astype(float)
    return [
        Part(np.column_stack([x[rows], np.full(20, number)]), y[rows])
        for number, rows in enumerate(np.split(np.arange(60), PARTS))
    ]


async def done_during_the_stall(connection, journal, limit):
    """Return how many iterations of others were in before part 0's first, and all leads."""
    model = ArrayModel(
        {"theta": np.zeros(4), "done": np.zeros(PARTS)},
        make_sleeping_loss(0.01, DELAYS, -60.0, 20),
    )
    keys, leads = [], []
    async with (
        stoilo.connect(connection, journal=journal) as conn,
        SspTrainer(
            conn,
            model,
            problem(),
            SspSettings(EPOCHS, limit),
            optimizer=Sgd(1.0),
            options=TrainerOptions(clip=None),
        ) as trainer,
    ):
        async for update in trainer:
            keys.append(update.update.key)
            leads.append(trainer.run.method.clock.lead)
    done = trainer.snapshot.parameters["done"]
    assert np.allclose(done, EPOCHS), "an iteration was left out, or counted twice"
    return keys.index("w0/i0"), max(leads)


@pytest.mark.slow
def test_limit_lets_the_others_go_on_just_so_far(tmp_path):
    with Deployment(tmp_path / "data", volunteers=PARTS) as running:
        found = {
            limit: asyncio.run(
                done_during_the_stall(
                    running.line.connection, Journal(tmp_path / f"j{limit}"), limit
                )
            )
            for limit in (0, 3)
        }
    done, lead = found[0]  # the control: BSP waits for the stalled one
    assert (done <= PARTS - 1, lead) == (True, 1)
    done, lead = found[3]
    # One of the two others may be queued behind the stall: volunteers fetch one ahead.
    assert PARTS - 1 < done <= 4 * (PARTS - 1)
    assert 1 < lead <= 4
