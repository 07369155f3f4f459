"""How arrays travel: encoded in the task, as the order's settings ask, and to it.

An encoded array is one vector of bytes (``uint8``) under the array's own name. The other
side, which doubts every one of them, is `unpack`: the driver calls it
(`stoilo.learn.driver.transport`), a kernel for its own arguments, and a server's validator
takes it along as source. It raises ValueError with the fault as text, and takes no more than
a few times the arrays' memory.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

__all__ = ["arrive", "compress", "decode", "encode", "pack", "unpack"]


RLE = (
    3  # zlib's strategy of runs and Huffman codes; mantissas hold nothing to search for
)
# Levels an entry may have → how many entries lie in a byte
IN_A_BYTE = {2: 8, 3: 5, 15: 2, 255: 1}
AT_ONCE = 1 << 15  # entries in doubles: they stay in the processor's cache
MOST_HALF = 65504.0  # the largest float16


def arrive(kwargs):
    """Return a kernel's arguments with the parameters as arrays, however they came.

    ``downlink`` says it, where they are more than that: ``told`` of each blob (see `unpack`),
    ``forms`` of the arrays. To ``parameters`` come ``delta1`` and so on, one after the other:
    single sums and products, of which every processor makes the same bits. With ``keys`` the
    blobs hold pieces, which one after the other are all entries of all arrays.
    """
    came = kwargs.get("downlink")
    if came is None:
        return kwargs
    if "keys" in came:
        return {**kwargs, "parameters": join(kwargs, came)}
    told, forms = came["told"], came["forms"]
    found = unpack(told[0], kwargs["parameters"], forms)
    for number in range(1, len(told)):
        way = unpack(told[number], kwargs[f"delta{number}"], forms)
        found = {name: found[name] + way[name] for name in found}
    return {**kwargs, "parameters": found}


def join(kwargs, came):
    """Return the arrays that the pieces in a number of ``blobs`` are."""
    pieces = dict(kwargs["parameters"])
    for number in range(1, came["blobs"]):
        pieces |= kwargs[f"delta{number}"]
    whole = np.concatenate([np.ravel(pieces[key]) for key in came["keys"]])
    found, start = {}, 0
    for name, (dtype, shape) in came["forms"].items():
        stop = start + math.prod(shape)
        found[name] = whole[start:stop].astype(dtype).reshape(tuple(shape))
        start = stop
    return found


def pack(kwargs, tensors):
    """Return arrays as ``settings["transport"]`` asks; without it as they are."""
    settings = kwargs["settings"]
    wanted = settings.get("transport")
    if wanted is None:
        return tensors
    moves = settings.get("give") == "parameters" and wanted["codec"] != "compressed"
    base = kwargs["parameters"] if moves else {}
    chooser = np.random.Generator(np.random.PCG64(wanted.get("seed", 0)))
    packed = {}
    for name, array in tensors.items():
        moved = array - base[name] if name in base else array
        packed[name] = encode(choose_layer(wanted, name), moved, chooser)
    return packed


def choose_layer(told, name):
    """Return the codec of one array."""
    return told["of"][name] if told["codec"] == "layers" else told


def encode(told, array, chooser):  # noqa: PLR0911 - one a codec
    """Return the array, which stays as it is, as bytes: what a codec's name means."""
    codec = told["codec"]
    if codec == "compressed":
        return compress(array)
    if codec == "levels":
        return make_levels(array, told, chooser)
    if codec == "half":
        return make_half(array, told["kind"])
    if codec == "largest":
        return make_largest(array, told["share"])
    if codec == "product" and is_worth(array.shape, told["rank"]):
        return make_product(array, told, chooser)
    if codec == "both":
        first = encode(told["first"], array, chooser)
        try:
            left = array - decode(told["first"], first, array.dtype, array.shape)
        except ValueError:
            return first[:0]  # the gradient is no number; an empty frame is refused
        length = np.array([first.size], "<u4").view(np.uint8)
        return np.concatenate([length, first, encode(told["rest"], left, chooser)])
    return as_bytes(array)


def as_bytes(array):
    """Return an array's own bytes."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


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


def make_levels(array, told, chooser):
    """Return each entry as one of ``base`` even steps from -s to s, s its block's scale.

    The step is drawn so that its expectation is the entry; with the norm ``mean`` it is the
    entry's sign, which is biased. A frame holds each block's ``s`` in the array's type, then
    the steps' numbers, the first of a byte the least significant digit in base ``base``.
    """
    base, block, count = told["base"], told["block"], array.size
    blocks, flat = -(-count // block), array.reshape(-1)
    scales, steps = np.zeros(blocks, array.dtype), np.zeros((blocks, block), np.uint8)
    some = max(1, AT_ONCE // block)
    for start in range(0, blocks, some):
        # In doubles: beside 1, an entry of float32 would lose what the draw is to keep.
        rows = np.zeros((min(some, blocks - start), block))
        part = flat[start * block : (start + some) * block]
        rows.reshape(-1)[: part.size] = part
        found = measure_blocks(rows, part.size, told["norm"]).astype(array.dtype)
        scales[start : start + some] = found
        if told["norm"] == "mean":
            steps[start : start + some] = rows >= 0.0
        else:
            drawn = chooser.random(rows.shape, dtype=np.float32)
            steps[start : start + some] = draw_steps(rows, found, base, drawn)
    return np.concatenate([as_bytes(scales), join_digits(steps, base, count)])


def draw_steps(rows, scales, base, drawn):
    """Return the numbers of the steps between which the rows' entries lie, by the draw."""
    usable = np.isfinite(scales) & (scales > 0)  # others are refused, or all zeros
    ratio = rows / np.where(usable, scales, 1.0)[:, None].astype(np.float64)
    ratio = np.clip(np.nan_to_num(ratio), -1.0, 1.0) + 1.0
    return (ratio * ((base - 1) / 2) + drawn).astype(np.uint8)


def measure_blocks(rows, count, norm):
    """Return each block's scale: its largest size, Euclidean norm, or mean size."""
    if norm == "l2":
        return np.sqrt((rows * rows).sum(axis=1))
    if norm == "max":
        return np.abs(rows).max(axis=1)
    block = rows.shape[1]
    filled = np.minimum(block, count - block * np.arange(len(rows)))
    return (np.abs(rows) / filled[:, None]).sum(axis=1)


def join_digits(steps, base, count):
    """Return the first `count` of the steps' numbers, as many as fit in each byte."""
    places = IN_A_BYTE[base]
    digits = np.zeros((-(-count // places), places), np.uint8)
    digits.reshape(-1)[:count] = steps.reshape(-1)[:count]
    codes = digits[:, places - 1]
    for place in reversed(range(places - 1)):
        codes = codes * np.uint8(base) + digits[:, place]
    return codes


def make_half(array, kind):
    """Return two bytes an entry, rounded to nearest: ``float16`` or ``bfloat16``."""
    if kind == "float16":
        return as_bytes(np.clip(array, -MOST_HALF, MOST_HALF).astype("<f2"))
    words = np.ascontiguousarray(array, "<f4").reshape(-1).view("<u4")
    # Ties to even; what is no number must stay none.
    near = words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1))
    words = np.where(np.isfinite(words.view("<f4")), near, words)
    return as_bytes((words >> np.uint32(16)).astype("<u2"))


def make_largest(array, share):
    """Return places (``<u4``, ascending) and values of the entries of largest size."""
    flat = array.reshape(-1)
    least = flat.size - count_largest(flat.size, share)
    places = np.sort(np.argpartition(np.abs(flat), least)[least:]) if flat.size else []
    places = np.array(places, "<u4")
    return np.concatenate([as_bytes(places), as_bytes(flat[places])])


def count_largest(size, share):
    """Return how many entries travel: that share, rounded up; one at least, of any."""
    return min(size, max(1, math.ceil(share * size)))


def is_worth(shape, rank):
    """Return whether two factors of that rank are smaller than the array."""
    if len(shape) < 2:
        return False
    rows, columns = shape[0], math.prod(shape[1:])
    return rank * (rows + columns) < rows * columns


def make_product(array, told, chooser):
    """Return P, its columns orthonormal, and Q with ``P Qᵀ`` near the array as a matrix."""
    matrix = array.reshape(len(array), -1).astype(np.float64)
    right = chooser.standard_normal((matrix.shape[1], told["rank"]))
    for _ in range(told["rounds"]):
        left = np.linalg.qr(matrix @ right)[0]
        right = matrix.T @ left
    return as_bytes(np.concatenate([left, right]).astype(array.dtype))


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
    return {
        name: _decode(choose_layer(told, name), frames[name], *forms[name])
        for name in frames
    }


def _decode(told, frame, dtype, shape):
    is_array = type(frame) is np.ndarray
    if not is_array or frame.dtype != np.uint8 or frame.ndim != 1:
        raise ValueError("an array is not encoded as was asked for")
    return decode(told, frame, np.dtype(dtype), shape)


def decode(told, frame, dtype, shape):  # noqa: PLR0911 - one a codec
    """Return the array that a vector of bytes, otherwise unchecked, stands for.

    Raises ValueError where it stands for none. Single entries may still be no numbers.
    """
    codec = told["codec"]
    if codec == "compressed":
        return decompress(frame, dtype, shape)
    if codec == "levels":
        return read_levels(frame, dtype, shape, told["base"], told["block"])
    if codec == "half":
        return read_half(frame, dtype, shape, told["kind"])
    if codec == "largest":
        return read_largest(frame, dtype, shape, told["share"])
    if codec == "product" and is_worth(shape, told["rank"]):
        return read_product(frame, dtype, shape, told["rank"])
    if codec == "both":
        return read_both(told, frame, dtype, shape)
    if codec not in ("product", "raw"):
        raise ValueError("an array is encoded as this version does not know")
    return view(frame, dtype, math.prod(shape)).reshape(shape)


def view(frame, dtype, count):
    """Return the bytes as so many entries; ValueError when it is another number."""
    if frame.size != count * np.dtype(dtype).itemsize:
        raise ValueError("an encoded array has not as many bytes as its form")
    return np.frombuffer(frame.tobytes(), dtype)


def decompress(frame, dtype, shape):
    """Return the array that `compress` made a frame of."""
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


def read_levels(frame, dtype, shape, base, block):
    """Return the array that a frame of `make_levels` stands for."""
    count, places, half = math.prod(shape), IN_A_BYTE[base], (base - 1) / 2
    blocks = -(-count // block)
    head = blocks * dtype.itemsize
    scales, codes = view(frame[:head], dtype, blocks), frame[head:]
    if codes.size != -(-count // places):
        raise ValueError("an encoded array has not as many bytes as its form")
    if not np.isfinite(scales).all() or (scales < 0).any():
        raise ValueError("a block's scale is negative or not finite")
    if (codes >= base**places).any():
        raise ValueError("a byte stands for no level")
    known = np.arange(base**places)[:, None] // base ** np.arange(places) % base
    if codes.size and known[codes[-1]][count - places * (codes.size - 1) :].any():
        raise ValueError("an encoded array goes on after its last entry")
    sizes = ((known - half) / half).astype(dtype)
    found = np.zeros((blocks, block), dtype)
    found.reshape(-1)[:count] = sizes[codes].reshape(-1)[:count]
    return (found * scales[:, None]).reshape(-1)[:count].reshape(shape)


def read_half(frame, dtype, shape, kind):
    """Return the array that a frame of `make_half` stands for."""
    count = math.prod(shape)
    if kind == "float16":
        return view(frame, "<f2", count).astype(dtype).reshape(shape)
    words = view(frame, "<u2", count).astype("<u4") << np.uint32(16)
    return words.view("<f4").astype(dtype).reshape(shape)


def read_largest(frame, dtype, shape, share):
    """Return the array that a frame of `make_largest` stands for."""
    size = math.prod(shape)
    count = count_largest(size, share)
    places = view(frame[: 4 * count], "<u4", count).astype(np.int64)
    values = view(frame[4 * count :], dtype, count)
    if (places >= size).any() or (places[1:] <= places[:-1]).any():
        raise ValueError("places of entries are beyond the array or not ascending")
    found = np.zeros(size, dtype)
    found[places] = values
    return found.reshape(shape)


def read_product(frame, dtype, shape, rank):
    """Return the array that a frame of `make_product` stands for."""
    rows, columns = shape[0], math.prod(shape[1:])
    both = view(frame, dtype, rank * (rows + columns)).reshape(-1, rank)
    # Of honest factors one is orthonormal; and no product may be a sum without end.
    if not np.isfinite(both).all() or (np.abs(both[:rows]) > 1.001).any():
        raise ValueError("a factor is not finite or too large")
    with np.errstate(over="ignore", invalid="ignore"):  # the acceptance check sees it
        return (both[:rows] @ both[rows:].T).reshape(shape)


def read_both(told, frame, dtype, shape):
    """Return the sum of what the two frames stand for."""
    if frame.size < 4:
        raise ValueError("an encoded array is too short")
    end = 4 + int(view(frame[:4], "<u4", 1)[0])
    with np.errstate(over="ignore", invalid="ignore"):  # as above
        first = decode(told["first"], frame[4:end], dtype, shape)
        return first + decode(told["rest"], frame[end:], dtype, shape)
