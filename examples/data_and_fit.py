"""From a file to a trained model: loaders, parts that differ, `fit`, and what answers weigh.

Lines of a file become parts; parts are made alike, of two classes each, or of shares that
are drawn from a Dirichlet distribution. `fit` shows what a step will take and how training
goes, and stops at a target. A codec saves bytes of every answer.
"""

import tempfile
from pathlib import Path
from typing import Any

import digits
import numpy as np
from commandline import run

import stoilo
from stoilo import learn
from stoilo.learn.driver.transport import TransportName

PARTS = 8
TARGET = 0.25
LOCAL: dict[str, Any] = {"epochs": 6, "rate": 0.3, "batch": 16}
CODECS: tuple[TransportName, ...] = ("raw", "compressed", "ternary")


async def main(conn: stoilo.Connection | None) -> None:
    """Load, split, train with a display, and compare the codecs."""
    data = digits.load()
    read_file(data)
    splits = split(*data.train)
    await train_each(conn, splits, data)
    await stop_at_target(conn, splits["alike"], data)
    await compare_codecs(conn, splits["alike"], data)


def read_file(data) -> None:
    """Write images as lines, read them back in parts, and scale them on the way."""
    images, labels = data.train
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "digits.csv"
        np.savetxt(file, np.column_stack([images * 16, labels]), "%d", delimiter=",")
        parts = learn.read_lines(file, learn.parse_columns(","), PARTS)
    scale = learn.chain(np.asarray, lambda image: image / 16.0, np.float64)
    pairs = [pair for part in parts for pair in zip(part.x, part.y, strict=True)]
    x, y = learn.collect(pairs, scale)
    print(f"read: {len(x)} images in {len(parts)} parts")
    assert np.array_equal(x, images)
    assert np.array_equal(y, labels)


def split(images, labels) -> dict[str, list[learn.Part]]:
    """Return the same images in parts that are more or less alike."""
    splits = {
        "alike": learn.split(images, labels, PARTS),
        "two classes each": learn.split_by_classes(images, labels, PARTS, classes=2),
        "Dirichlet 0.1": learn.split_by_dirichlet(images, labels, PARTS, alpha=0.1),
    }
    for name, parts in splits.items():
        print(f"{name}: largest class has {largest_class(parts):.0%} of a part")
        assert sum(map(len, parts)) == len(labels)
    alike, *unlike = map(largest_class, splits.values())
    assert alike < 0.2
    assert min(unlike) > 0.4
    return splits


def largest_class(parts) -> float:
    """Return the share of a part's images that show its commonest digit, on average."""
    return float(np.mean([np.bincount(part.y).max() / len(part) for part in parts]))


async def train_each(conn, splits, data) -> None:
    """Train as long on each split: what differs is what each volunteer knows."""
    right = {}
    for name, parts in splits.items():
        model = digits.network()
        trained = await learn.fit("fedavg", model, parts, conn, **LOCAL)
        right[name] = digits.accuracy(trained.model, *data.held_out)
        print(f"{name}: {right[name]:.1%} right")
    assert right["alike"] > 0.85
    assert right["alike"] > max(right["two classes each"], right["Dirichlet 0.1"])


async def stop_at_target(conn, parts, data) -> None:
    """Say what a step will take, then train with a display until it is good enough."""
    trainer = learn.make_trainer("fedavg", digits.network(), parts)
    home = learn.Conditions(volunteers=4, upload=2e6)
    found = trainer.estimate(home)
    assert (found.tasks, found.rounds) == (PARTS, 2)
    assert "tasks are too small" in found.warnings()[0]
    trained = await learn.fit(
        "fedavg", digits.network(), parts, conn, **LOCAL | {"epochs": 40},
        held_out=data.held_out, stop=learn.StopRule(target=TARGET, patience=3),
        progress=True, conditions=home,
    )  # fmt: skip
    print(f"stopped after {len(trained.epochs)} of 40 epochs")
    assert len(trained.epochs) < 40
    last = trained.epochs[-1].held_out
    assert last is not None
    assert last.loss <= TARGET


async def compare_codecs(conn, parts, data) -> None:
    """Train with each way of sending gradients and count bytes."""
    bytes_of, models = {}, {}
    for name in CODECS:
        trained = await learn.fit(
            "dpbgd", digits.network(), parts, conn, epochs=40, rate=0.03,
            options=learn.TrainerOptions(transport=name),
        )  # fmt: skip
        bytes_of[name], models[name] = trained.tally.received_bytes, trained.model
        right = digits.accuracy(trained.model, *data.held_out)
        print(f"{name}: {right:.1%} right, {bytes_of[name]} bytes received")
        assert right > 0.8
    assert bytes_of["ternary"] < bytes_of["raw"] / 10
    assert bytes_of["compressed"] < bytes_of["raw"]
    same = models["raw"], models["compressed"]
    assert all(np.allclose(same[0][key], same[1][key]) for key in same[0])


if __name__ == "__main__":
    run(main, __doc__)
