"""How arrays travel back: encoded in the task, as the order's settings ask.

An encoded array is one vector of bytes (``uint8``) under the array's own name. The other
side, which doubts every one of them, is `unpack`: the driver calls it
(`stoilo.learn.driver.transport`), and a server's validator takes it along as source. It raises
ValueError with the fault as text, and takes no more than a few times the arrays' memory.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

__all__ = ["compress", "decompress", "make_ternary", "pack", "read_ternary", "unpack"]


RLE = (
    3  # zlib's strategy of runs and Huffman codes; mantissas hold nothing to search for
)


def pack(kwargs, tensors):
    """Return arrays as ``settings["transport"]`` asks; without it as they are."""
    settings = kwargs["settings"]
    wanted = settings.get("transport")
    if wanted is None:
        return tensors
    if wanted["codec"] == "compressed":
        return {name: compress(array) for name, array in tensors.items()}
    base = kwargs["parameters"] if settings.get("give") == "parameters" else {}
    chooser = np.random.Generator(np.random.PCG64(wanted["seed"]))
    packed = {}
    for name, array in tensors.items():
        moved = array - base[name] if name in base else array
        packed[name] = make_ternary(moved, wanted["block"], chooser)
    return packed


def compress(array):
    """Return the same numbers in fewer bytes: bytes of equal rank lie together.

    A frame holds the planes' lengths (``<u4``), then the planes: a zlib stream, or the
    bytes themselves where that is no longer.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    planes = flat.view(np.uint8).reshape(-1, flat.itemsize).T
    short = [shorten(plane.tobytes()) for plane in planes]
    lengths = np.array([len(plane) for plane in short], "<u4")
    return np.frombuffer(lengths.tobytes() + b"".join(short), np.uint8)


def shorten(plane):
    """Return the plane compressed, or itself."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 8, RLE)
    short = packer.compress(plane) + packer.flush()
    return short if len(short) < len(plane) else plane


def make_ternary(array, block, chooser):
    """Return signs drawn so that each entry's expectation is the entry (TernGrad, §3).

    An entry ``g`` of a block with largest size ``s`` becomes ``s sign(g)`` with
    probability ``|g| / s``, else 0. A frame holds each block's ``s`` in the array's type,
    then five entries a byte, in base 3: 0 is minus, 1 nothing, 2 plus.
    """
    count = array.size
    rows = np.zeros((-(-count // block), block), array.dtype)
    rows.reshape(-1)[:count] = array.reshape(-1)
    sizes = np.abs(rows)
    scales = sizes.max(axis=1)
    kept = chooser.random(rows.shape, dtype=np.float32) * scales[:, None] < sizes
    drawn = (kept & (rows > 0)).view(np.uint8) - (kept & (rows < 0)).view(np.uint8)
    digits = np.ones((-(-count // 5), 5), np.uint8)
    digits.reshape(-1)[:count] += drawn.reshape(-1)[:count]  # 255 + 1 is 0
    codes = digits[:, 4]
    for place in (3, 2, 1, 0):
        codes = codes * np.uint8(3) + digits[:, place]
    return np.concatenate([scales.view(np.uint8), codes])


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
