"""How arrays travel back: encoded in the task, as the order's settings ask.

An encoded array is one vector of bytes (``uint8``) under the array's own name. The other
side, which checks every one of them, is `stoilo.learn.transport`.
"""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["compress", "make_ternary", "pack"]

RLE = (
    3  # zlib's strategy of runs and Huffman codes; mantissas hold nothing to search for
)


def pack(kwargs, tensors):
    """Return arrays as ``settings["transport"]`` asks; without it as they are."""
    settings = kwargs["settings"]
    wish = settings.get("transport")
    if wish is None:
        return tensors
    if wish["codec"] == "compressed":
        return {name: compress(array) for name, array in tensors.items()}
    base = kwargs["parameters"] if settings.get("give") == "parameters" else {}
    chooser = np.random.Generator(np.random.PCG64(wish["seed"]))
    packed = {}
    for name, array in tensors.items():
        moved = array - base[name] if name in base else array
        packed[name] = make_ternary(moved, wish["block"], chooser)
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
