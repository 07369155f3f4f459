"""Encoded arrays made into arrays again, every byte of them doubted: see `packing`.

These functions serve both sides that trust nobody: the driver (`stoilo.learn.transport`)
calls them, and a server's validator takes them along as source. They raise ValueError with
the fault as text, and take no more than a few times the arrays' own memory.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

__all__ = ["decompress", "read_ternary", "unpack"]

DIGITS = 5  # signs in a byte
CODES = 3**DIGITS


def unpack(told, frames, forms):
    """Return the arrays of encoded ones; names that are missing stay so.

    Args:
        told: ``settings["transport"]`` of the order; None where nothing is encoded.
        frames: name → vector of bytes, unchecked.
        forms: name → (type, shape) of the model's arrays.
    """
    if told is None:
        return frames
    if type(frames) is not dict or any(name not in forms for name in frames):
        raise ValueError("the names of its arrays are not the model's")
    return {name: _decode(told, frames[name], *forms[name]) for name in frames}


def _decode(told, frame, dtype, shape):
    is_array = type(frame) is np.ndarray
    if not is_array or frame.dtype != np.uint8 or frame.ndim != 1:
        raise ValueError("an array is not encoded as was asked for")
    if told["codec"] == "compressed":
        return decompress(frame, dtype, shape)
    return read_ternary(frame, dtype, shape, told["block"])


def decompress(frame, dtype, shape):
    """Return the array that `packing.compress` made a frame of."""
    count, ranks = math.prod(shape), np.dtype(dtype).itemsize
    head = 4 * ranks
    if not head <= frame.size <= head + ranks * count:
        raise ValueError("a compressed array is too long or too short")
    lengths = [int(length) for length in np.frombuffer(frame[:head].tobytes(), "<u4")]
    if max(lengths) > count or head + sum(lengths) != frame.size:
        raise ValueError("a compressed array's lengths are not its bytes'")
    found = np.empty((count, ranks), np.uint8)
    start = head
    for rank, length in enumerate(lengths):
        plane = _inflate(frame[start : start + length].tobytes(), count)
        found[:, rank] = np.frombuffer(plane, np.uint8)
        start += length
    return np.frombuffer(found.tobytes(), dtype).reshape(shape)


def _inflate(plane, count):
    """Return `count` bytes; at most one further is written before a stream is refused."""
    if len(plane) == count:
        return plane
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(plane, count + 1)
    except zlib.error:
        raise ValueError("a compressed array is damaged") from None
    if len(found) != count or not stream.eof or stream.unused_data:
        raise ValueError("a compressed array has not as many entries as its form")
    return found


def read_ternary(frame, dtype, shape, block):
    """Return the array that a frame of `packing.make_ternary` stands for."""
    count = math.prod(shape)
    blocks = -(-count // block)
    head = blocks * np.dtype(dtype).itemsize
    if frame.size != head + -(-count // DIGITS):
        raise ValueError("a ternary array has not as many bytes as its form")
    scales, codes = np.frombuffer(frame[:head].tobytes(), dtype), frame[head:]
    if not np.isfinite(scales).all() or (scales < 0).any():
        raise ValueError("a ternary array's scale is negative or not finite")
    if (codes >= CODES).any():
        raise ValueError("a ternary array has bytes that stand for nothing")
    signs = _list_signs()[codes].reshape(-1)
    if signs[count:].any():
        raise ValueError("a ternary array goes on after its last entry")
    found = np.zeros((blocks, block), dtype)
    found.reshape(-1)[:count] = signs[:count]
    return (found * scales[:, None]).reshape(-1)[:count].reshape(shape)


def _list_signs():
    """Return each byte's five signs, ``(243, 5) int8``."""
    places = [np.arange(CODES) // 3**place % 3 - 1 for place in range(DIGITS)]
    return np.stack(places, axis=1).astype(np.int8)
