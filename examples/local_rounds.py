"""FedAvg and DiLoCo: many local steps, then one step of the model from where they led.

The parts hold different digits: nobody sees all ten. FedAvg takes the mean of the weights;
DiLoCo makes a Nesterov step towards it, over local AdamW.
"""

import digits
from commandline import run

import stoilo
from stoilo import learn

PARTS = 10
FEDAVG = learn.FederatedSettings(8, learn.LocalWork(rate=0.3, batch=10))
DILOCO = learn.FederatedSettings(
    8, learn.LocalWork(rate=0.005, batch=20, steps=20, optimizer="adamw")
)


async def main(conn: stoilo.Connection | None) -> None:
    """Train by both on parts that differ in their labels."""
    data = digits.load()
    parts = learn.split_by_label(*data.train, PARTS, disorder=0.5)
    fedavg = learn.FedAvgTrainer(conn, digits.network(), parts, FEDAVG)
    diloco = learn.DiLoCoTrainer(conn, digits.network(), parts, DILOCO)
    for trainer in (fedavg, diloco):
        async with trainer:
            trained = await trainer.train()
        right = digits.accuracy(trained.model, *data.held_out)
        print(f"{type(trainer).__name__}: {right:.1%} right after 8 rounds")
        assert right > 0.85


if __name__ == "__main__":
    run(main, __doc__)
