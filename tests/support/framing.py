"""Arrays through a codec: the frame that a task makes, the array that the driver reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import Generator

from stoilo.learn.core.orders import Order, Snapshot
from stoilo.learn.core.tensors import Array, Form
from stoilo.learn.driver.codecs import Transport
from stoilo.learn.driver.transport import ask, receive
from stoilo.learn.kernels import encoding

__all__ = [
    "ARRAYS", "BLOCKS", "FINITE", "FORM", "arrive", "chooser", "decode", "draws_of",
    "form_of", "make_frame", "order_for", "slope",
]  # fmt: skip

TYPES = st.sampled_from(["float16", "float32", "float64"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
ARRAYS = TYPES.flatmap(lambda dtype: hnp.arrays(dtype, SHAPES))
FINITE = TYPES.flatmap(
    lambda dtype: hnp.arrays(
        dtype, SHAPES, elements={"allow_nan": False, "allow_infinity": False}
    )
)
BLOCKS = st.integers(1, 300)
FORM = Form("float32", (7, 3))


def form_of(array: Array) -> Form:
    """Return what an array must look like."""
    return Form(str(array.dtype), array.shape)


def order_for(codec: Transport) -> Order:
    """Return an order whose answer travels so."""
    return ask(Order("g", "gradient", Snapshot(0, {"w": np.zeros(0)}), 0, 1), codec)


def make_frame(codec: Transport, array: Array, rng: Generator | None = None) -> Array:
    """Return what a task makes of an array."""
    untyped: Any = encoding
    told = untyped.choose_layer(order_for(codec).settings["transport"], "w")
    frame: Array = untyped.encode(told, array, rng or chooser())
    return frame


def decode(codec: Transport, frame: Array, form: Form) -> Array:
    """Return the array of a frame as the driver receives it."""
    order = order_for(codec)
    found: Any = receive({"tensors": {"w": frame}}, order, {"w": form})
    arrived: Array = found["tensors"]["w"]
    return arrived


def chooser(seed: int = 0) -> Generator:
    """Return a source of draws."""
    return np.random.Generator(np.random.PCG64(seed))


def arrive(codec: Transport, array: Array, rng: Generator | None = None) -> Array:
    """Return what arrives of an array."""
    return decode(codec, make_frame(codec, array, rng), form_of(array))


def draws_of(
    array: Array, encode: Callable[[Array, Generator], Array], count: int = 400
) -> Array:
    """Return what so many draws made of an array."""
    return np.stack([encode(array, chooser(seed)) for seed in range(count)])


def slope(array: Array, draws: Array) -> tuple[float, float]:
    """Return the slope of the mean draw on the array, and its standard error."""
    slopes = draws.reshape(len(draws), -1) @ array.ravel() / (array**2).sum()
    return float(slopes.mean()), float(slopes.std() / np.sqrt(len(draws)))
