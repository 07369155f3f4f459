"""ResNet18 on CIFAR-10 as the thesis ran it (§8), for who has the data.

    python examples/cifar10.py DATA --folder cifar10-run --connect stoilo-data/connection.json

DATA holds the *binary* version of the set (``data_batch_1.bin`` … ``test_batch.bin``): that of
Python is pickled. Training goes on where the folder says that it stopped; after each epoch the
folder holds ``progress.tsv`` and ``progress.svg``: accuracy over hours, beside the thesis's.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import commandline
import numpy as np
import torch
from torch import nn

import stoilo
from stoilo import learn, ml

ml.import_torchvision()  # also where its native operators do not fit this torch
from torchvision import models  # noqa: E402 - now it can be imported

IMAGE_BYTES = 3 * 32 * 32
THESIS_ACCURACY, THESIS_HOURS = 0.77, 70 / 60  # one thread, no pretraining
MEANS, SPREADS = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)  # of the training images


def read_batch(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (count, 3, 32, 32), normalised, and labels of one file of records."""
    records = np.fromfile(path, dtype=np.uint8)
    if not records.size or records.size % (1 + IMAGE_BYTES):
        raise SystemExit(f"{path.name} is no batch of CIFAR-10's binary version")
    records = records.reshape(-1, 1 + IMAGE_BYTES)
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()) / 255
    means, spreads = (torch.tensor(one)[:, None, None] for one in (MEANS, SPREADS))
    return (pixels - means) / spreads, torch.from_numpy(records[:, 0].astype(np.int64))


def read_training(folder: Path) -> torch.utils.data.TensorDataset:
    """Return the images and labels of all training files in `folder`."""
    batches = [read_batch(path) for path in sorted(folder.glob("data_batch_*.bin"))]
    if not batches:
        raise SystemExit(f"there is no data_batch_1.bin in {folder}")
    return torch.utils.data.TensorDataset(*map(torch.cat, zip(*batches, strict=True)))


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of `images` that are read rightly."""
    parts = zip(images.split(500), labels.split(500), strict=True)
    model.eval()
    return sum(int((model(x).argmax(1) == y).sum()) for x, y in parts) / len(labels)


# What has been reached -------------------------------------------------------------------


def read_progress(file: Path) -> list[tuple[int, float, float, float]]:
    """Return (epoch, hours, loss, accuracy) of every epoch so far."""
    lines = file.read_text().splitlines()[1:] if file.exists() else []
    rows = [line.split("\t") for line in lines]
    return [(int(epoch), float(h), float(x), float(a)) for epoch, h, x, a in rows]


def write_progress(file: Path, rows: list[tuple[int, float, float, float]]) -> None:
    """Write the table and, beside it, the plot."""
    lines = [f"{e}\t{h:.4f}\t{x:.4f}\t{a:.4f}" for e, h, x, a in rows]
    file.write_text("\n".join(["epoch\thours\tloss\taccuracy", *lines, ""]))
    file.with_suffix(".svg").write_text(draw_accuracy([(h, a) for _, h, _, a in rows]))


def draw_accuracy(points: list[tuple[float, float]]) -> str:
    """Return an SVG of accuracy over hours, with what the thesis reached as a cross."""
    reached = {"thesis: 77 %, 70 min": (THESIS_HOURS, THESIS_ACCURACY)}
    return learn.draw({"accuracy": points}, across="hours", marks=reached)


# Training --------------------------------------------------------------------------------


async def main(
    conn: stoilo.Connection | None,
    *,
    data: Path,
    folder: Path,
    epochs: int = 30,
    steps: int = 12,
    tasks: int = 6,
) -> None:
    """Train to so many epochs in all, going on from what `folder` holds.

    Args:
        conn: a project's volunteers; threads of this process when None.
        data: where the files of CIFAR-10's binary version lie.
        folder: of the run: the trainer's state, the table and the plot.
        epochs: passes over the data.
        steps: optimiser steps in a pass.
        tasks: of each step.
    """
    torch.manual_seed(0)
    held_out = read_batch(data / "test_batch.bin")
    rows = read_progress(folder / "progress.tsv")
    before, begun = (rows[-1][1] if rows else 0.0), time.monotonic()
    trainer = await ml.DPBGDTrainer(
        conn,
        models.resnet18(num_classes=10),
        nn.functional.cross_entropy,
        torch.optim.Adam,
        {"lr": 1e-3},
        read_training(data),
        options=ml.DPBGDOptions(
            tasks=tasks, steps_per_epoch=steps, folder=folder / "state"
        ),
    )
    async with trainer:
        while trainer.epoch_number < epochs:
            model, loss = await trainer.train_epoch()
            hours = before + (time.monotonic() - begun) / 3600
            rows.append((trainer.epoch_number, hours, loss, accuracy(model, *held_out)))
            write_progress(folder / "progress.tsv", rows)
            print(
                f"epoch {rows[-1][0]}: loss {loss:.3f}, {rows[-1][3]:.1%} right",
                end=" ",
            )
            print(f"after {hours:.2f} h (thesis: 77 % after 1.17 h)")
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})


def run() -> None:
    """Run `main` as the command line says."""
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument("data", type=Path, help="folder with CIFAR-10's .bin files")
    reader.add_argument("--folder", type=Path, default=Path("cifar10-run"))
    reader.add_argument("--connect", type=Path, help="a project's connection file")
    for name, default in (("epochs", 30), ("steps", 12), ("tasks", 6)):
        reader.add_argument(f"--{name}", type=int, default=default)
    wish = vars(reader.parse_args())
    file = wish.pop("connect")
    wish["folder"].mkdir(parents=True, exist_ok=True)
    asyncio.run(commandline.attend(lambda conn: main(conn, **wish), file))


if __name__ == "__main__":
    run()
