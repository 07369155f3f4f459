"""A training before there are volunteers: speeds, losses, death and return, on a clock.

The numbers are computed for real, only time is played: minutes of volunteers pass in a
second, and the same seed gives the same run.
"""

import digits
from commandline import run

import stoilo
from stoilo import learn

HOSTS = [
    learn.SimulatedHost(samples_per_s=200.0, poll_s=10.0),
    learn.SimulatedHost(samples_per_s=100.0, poll_s=10.0, loss=0.2),
    learn.SimulatedHost(samples_per_s=50.0, poll_s=20.0, stall=0.1),
    learn.SimulatedHost(away=[learn.Spell(60.0, 600.0)]),
]


async def main(conn: stoilo.Connection | None) -> None:
    """Train on volunteers who lose tasks, stall, go away and come back."""
    data = digits.load()
    place = conn or learn.SimulatedBackend(HOSTS, deadline_s=120.0)
    options = learn.TrainerOptions(tasks=16, held_out=data.held_out)
    work = learn.LocalWork(rate=0.5, batch=10)
    async with learn.VCASGDTrainer(
        place, digits.network(), data.train, alpha=0.7, epochs=4,
        local=work, local_steps=0, options=options,
    ) as trainer:  # fmt: skip
        print(trainer.estimate(learn.Conditions(volunteers=len(HOSTS))))
        began = trainer.run.backend.now()
        async for update in trainer:
            if update.update.epoch_ended:
                seconds = trainer.run.backend.now() - began
                print(f"after {seconds:.0f} s: loss {update.loss:.3f}")
        for epoch in trainer.epochs:
            assert epoch.accepted_tasks == 16  # each part once, whatever got lost
    if isinstance(place, learn.SimulatedBackend):
        print("tasks of each host:", place.served)
    assert digits.accuracy(trainer.model, *data.held_out) > 0.9


if __name__ == "__main__":
    run(main, __doc__)
