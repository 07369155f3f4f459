"""DPBGD: a task computes the gradient of one mini-batch; all of them make one step.

All published interfaces: the thesis's `await stoilo.ml.DPBGDTrainer(...)` with a dataset
and `train_epoch()`, the 2025 one of `stoilo.ddl` with `epoch(data_loader)`, and those of
2026 with a step a call: `SyncDataParallelTrainer`, which waits for every batch, and
`StaleSyncDataParallelTrainer`, which ends a step with 7/8 of them.
"""

import digits
import torch
from commandline import run
from torch import nn

import stoilo
from stoilo import learn

ADAM = {"lr": 0.05}
EPOCHS = 15


class Network(nn.Module):
    """A classifier with BatchNorm, whose statistics come back from the volunteers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)
        )

    def forward(self, x):
        """Return ten scores for each image."""
        return self.layers(x)


async def main(conn: stoilo.Connection | None) -> None:
    """Train the same network through each interface."""
    data = digits.load()
    train, held_out = as_tensors(data.train), as_tensors(data.held_out)
    for make in (by_dataset, by_loader, by_steps, by_partial_steps):
        torch.manual_seed(0)
        model = await make(conn, Network(), train)
        print(f"{make.__name__}: {accuracy(model, held_out):.1%} right")
        assert accuracy(model, held_out) > 0.85


async def by_dataset(conn, model, data):
    """Train as the thesis prints it; an epoch is one step over the whole dataset."""
    dataset = torch.utils.data.TensorDataset(*data)
    trainer = await stoilo.ml.DPBGDTrainer(
        conn, model, nn.functional.cross_entropy, torch.optim.Adam, ADAM, dataset
    )
    for _ in range(EPOCHS):
        model, loss = await trainer.train_epoch()
    await trainer.close()
    print(f"loss {loss:.3f}")
    return model


async def by_loader(conn, model, data):
    """Train with a loader: each of its batches is a task."""
    dataset = torch.utils.data.TensorDataset(*data)
    loader = torch.utils.data.DataLoader(dataset, batch_size=200, shuffle=True)
    trainer = stoilo.ddl.DPBGDTrainer(
        conn, model, nn.CrossEntropyLoss(), torch.optim.Adam, ADAM
    )
    for _ in range(EPOCHS):
        model, loss = await trainer.epoch(loader)
    await trainer.close()
    print(f"loss {loss:.3f}")
    return model


async def by_steps(conn, model, data):
    """Train with a step a call: all eight batches make it."""
    trainer = learn.SyncDataParallelTrainer(
        conn, model, nn.CrossEntropyLoss, {}, torch.optim.Adam, ADAM
    )
    return await step_by_step(trainer, data, accepted=8)


async def by_partial_steps(conn, model, data):
    """Train without waiting for the slowest batch of a step."""
    trainer = learn.StaleSyncDataParallelTrainer(
        conn, model, nn.CrossEntropyLoss, {}, torch.optim.Adam, ADAM
    )
    return await step_by_step(trainer, data, accepted=7)


async def step_by_step(trainer, data, accepted):
    """Make the steps, and check how many batches counted in each."""
    dataset = torch.utils.data.TensorDataset(*data)
    loader = torch.utils.data.DataLoader(dataset, batch_size=175)
    async with trainer:
        for step in range(EPOCHS):
            metrics = await trainer.train_step(0, step, loader)
            assert metrics.accepted_tasks == accepted
    print(
        f"loss {metrics.average_loss:.3f}, {accepted} of {len(loader)} batches a step"
    )
    return trainer.get_model()


def as_tensors(pair):
    """Return images and labels as torch computes with them."""
    images, labels = pair
    return torch.tensor(images, dtype=torch.float32), torch.tensor(labels)


@torch.no_grad()
def accuracy(model, data) -> float:
    """Return the share that is right, with the collected statistics of BatchNorm."""
    images, labels = data
    return float((model.eval()(images).argmax(dim=1) == labels).float().mean())


if __name__ == "__main__":
    run(main, __doc__)
