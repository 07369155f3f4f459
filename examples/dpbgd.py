"""DPBGD: a task computes the gradient of one mini-batch; all of them make one step.

Both published interfaces: the thesis's `await stoilo.ml.DPBGDTrainer(...)` with a dataset
and `train_epoch()`, and the 2025 one of `stoilo.ddl` with `epoch(data_loader)`, a step a
call; the last one ends each step with 7/8 of its batches.
"""

import digits
import torch
from commandline import run
from torch import nn

import stoilo

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
    for make in (by_dataset, by_loader, by_partial_steps):
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


async def by_partial_steps(conn, model, data):
    """Train without waiting for the slowest of the eight batches of a step."""
    dataset = torch.utils.data.TensorDataset(*data)
    loader = torch.utils.data.DataLoader(dataset, batch_size=175)
    async with stoilo.ml.DPBGDTrainer(
        conn, model, nn.CrossEntropyLoss(), torch.optim.Adam, ADAM,
        options=stoilo.ml.DPBGDOptions(fraction=0.875),
    ) as trainer:  # fmt: skip
        for _ in range(EPOCHS):
            model, loss = await trainer.epoch(loader)
            assert trainer.epochs[-1].accepted_tasks == 7
    print(f"loss {loss:.3f}, 7 of {len(loader)} batches a step")
    return model


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
