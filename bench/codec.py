"""The codec against JSON lists (the thesis's way) on a ResNet18-sized gradient."""

from __future__ import annotations

import json

import numpy as np

from bench.rows import Row, median_seconds, seconds_once
from stoilo.core.codec.nodes import from_node, to_node
from stoilo.core.codec.skeleton import decode, encode

# The 3x3 convolutions and the head of a ResNet18 with ten classes: 11 million parameters.
LAYERS = {
    "conv1": (64, 3, 3, 3),
    **{f"layer1.{i}": (64, 64, 3, 3) for i in range(4)},
    "layer2.0": (128, 64, 3, 3),
    **{f"layer2.{i}": (128, 128, 3, 3) for i in range(1, 4)},
    "layer3.0": (256, 128, 3, 3),
    **{f"layer3.{i}": (256, 256, 3, 3) for i in range(1, 4)},
    "layer4.0": (512, 256, 3, 3),
    **{f"layer4.{i}": (512, 512, 3, 3) for i in range(1, 4)},
    "fc": (10, 512),
}


Shapes = dict[str, tuple[int, ...]]


def make_gradient(layers: Shapes) -> dict[str, np.ndarray]:
    """Return float32 gradients of these shapes, heavy-tailed, repeatable."""
    chooser = np.random.default_rng(1)
    return {
        name: (chooser.standard_t(3, shape) * 1e-3).astype("float32")
        for name, shape in layers.items()
    }


def check_gradient(gradient: dict[str, np.ndarray], layers: Shapes) -> None:
    """Do what a server does before use: names, shapes, dtypes, finite."""
    assert gradient.keys() == layers.keys()
    for name, array in gradient.items():
        assert array.shape == layers[name]
        assert array.dtype == np.float32
        assert np.isfinite(array).all()


def measure(layers: Shapes = LAYERS) -> list[Row]:
    """Time encode + decode + check, and compare sizes."""
    gradient = make_gradient(layers)

    def ours() -> bytes:
        data = encode(to_node(gradient))
        check_gradient(from_node(decode(data)), layers)
        return data

    def lists() -> str:
        text = json.dumps({name: array.tolist() for name, array in gradient.items()})
        check_gradient(
            {
                name: np.array(rows, "float32")
                for name, rows in json.loads(text).items()
            },
            layers,
        )
        return text

    mine = median_seconds(ours, runs=7)
    theirs, text = seconds_once(lists)  # a minute and a half on a busy machine: one run
    sizes = len(ours()), len(text)
    return [
        Row("gradient: encode + decode + check", mine * 1e3, "ms", "JSON lists",
            theirs * 1e3, theirs / mine, "times faster", ">= 100x", theirs / mine >= 100),
        Row("gradient: size", sizes[0] / 1e6, "MB", "JSON lists", sizes[1] / 1e6,
            sizes[1] / sizes[0], "times smaller", ">= 5.8x", sizes[1] / sizes[0] >= 5.8),
    ]  # fmt: skip
