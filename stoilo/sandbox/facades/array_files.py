"""Arrays as files: numpy's own formats and tables of text, in memory, without pickles."""

from __future__ import annotations

import ast
import io
import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy

from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.substitutes import by_name

# Archives of arrays: as much of the ZIP format as ``numpy.savez`` writes, and nothing else
#
# Members are stored or deflated. Every size is compared with the bytes that are there, and a
# member is unpacked to the size that it announces at most. Source: PKWARE's APPNOTE.TXT.


_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_STORED, _DEFLATED = 0, 8
_VERSION, _DATE_1980, _UTF_8 = 20, 33, 0x800
_ALL_ONES = 0xFFFF_FFFF


def _pack(data: bytes, *, deflate: bool) -> bytes:
    if not deflate:
        return data
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def write_members(members: dict[str, bytes], *, deflate: bool) -> bytes:
    """Return an archive of `members`, the same at every host."""
    body, directory = bytearray(), bytearray()
    method = _DEFLATED if deflate else _STORED
    for name, data in members.items():
        label, packed = name.encode(), _pack(data, deflate=deflate)
        if max(len(data), len(body)) >= _ALL_ONES:
            raise ValueError("an archive in memory holds less than 4 GiB")
        sizes = (zlib.crc32(data), len(packed), len(data), len(label), 0)
        fixed = (_VERSION, _UTF_8, method, 0, _DATE_1980, *sizes)
        entry = (b"PK\1\2", _VERSION, *fixed, 0, 0, 0, 0, len(body))
        directory += _CENTRAL.pack(*entry) + label
        body += _LOCAL.pack(b"PK\3\4", *fixed) + label + packed
    count = len(members)
    end = (b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory + _END.pack(*end))


def read_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each member of the (untrusted) archive.

    Raises:
        ValueError: these bytes are no such archive, or a sum is wrong.
    """
    try:
        yield from _members(data)
    except (struct.error, zlib.error, UnicodeDecodeError) as error:
        message = f"the archive is damaged: {type(error).__name__}"
        raise ValueError(message) from None


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    end = _END.unpack(data[-_END.size :])
    if end[0] != b"PK\5\6":
        raise ValueError("the archive has no end")
    place = end[6]
    for _ in range(end[4]):
        entry = _CENTRAL.unpack_from(data, place)
        if entry[0] != b"PK\1\2":
            raise ValueError("the archive has no directory")
        place += _CENTRAL.size
        name = data[place : place + entry[10]].decode()
        place += entry[10] + entry[11] + entry[12]
        yield name, _content(data, entry)


def _content(data: bytes, entry: tuple[int, ...]) -> bytes:
    method, check, packed, size, start = entry[4], *entry[7:10], entry[16]
    local = _LOCAL.unpack_from(data, start)
    first = start + _LOCAL.size + local[9] + local[10]
    inside = data[first : first + packed]
    if method == _DEFLATED:
        inside = zlib.decompressobj(-zlib.MAX_WBITS).decompress(inside, size + 1)
    elif method != _STORED:
        raise ValueError(f"members packed by method {method} are not read here")
    if len(inside) != size or zlib.crc32(inside) != check:
        raise ValueError("a member of the archive is damaged")
    return inside


# `numpy.save`, `load`, `savez`: numpy's own format, in memory, without pickles --------
#
# The header of hostile bytes says how large an array is: nothing is made before as many bytes
# are there. Only plain data go in and out, since an array of objects is a pickle in this
# format, and one of packed strings holds addresses.


_KINDS = frozenset("biufcmMSUV")
_ZIP = b"PK"
_LENGTHS = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}
"""Version of the format → bytes of the header's length."""

_HEADER_BYTES = 10_000


def _check_file(file: Any) -> Any:
    if type(file) is not io.BytesIO:
        raise FileNotFoundError("a task has no files: use an io.BytesIO()")
    return file


def _check_options(allow_pickle: object, mmap_mode: object = None) -> None:
    if allow_pickle:
        raise GuardError("STO-G102", "a task reads and writes no pickles")
    if mmap_mode is not None:
        raise ValueError("what is in memory cannot be mapped")


def _is_plain(dtype: Any) -> bool:
    if dtype.subdtype is not None:
        return _is_plain(dtype.subdtype[0])
    if dtype.names is not None:
        return all(_is_plain(dtype[name]) for name in dtype.names)
    return dtype.kind in _KINDS and not dtype.hasobject


def _check_dtype(dtype: Any) -> None:
    if not _is_plain(dtype):
        raise ValueError(f"arrays of dtype {dtype!s:.64} need a pickle, or addresses")


# Writing -----------------------------------------------------------------------------


def _encode(array: Any) -> bytes:
    data = np.asarray(array)
    _check_dtype(data.dtype)
    out = io.BytesIO()
    npy.write_array(out, data, allow_pickle=False)
    return out.getvalue()


def save(file: Any, arr: Any, allow_pickle: bool = False) -> None:
    _check_options(allow_pickle)
    _check_file(file).write(_encode(arr))


def _write_archive(file: Any, arrays: dict[str, Any], *, deflate: bool) -> None:
    members = {f"{name}.npy": _encode(array) for name, array in arrays.items()}
    _check_file(file).write(write_members(members, deflate=deflate))


def _named(arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    found = {f"arr_{place}": array for place, array in enumerate(arrays)}
    if both := found.keys() & named.keys():
        raise ValueError(f"Cannot use un-named variables and keyword {min(both)}")
    return found | named


def savez(file: Any, *args: Any, allow_pickle: bool = False, **kwds: Any) -> None:
    _check_options(allow_pickle)
    _write_archive(file, _named(args, kwds), deflate=False)


def savez_compressed(
    file: Any, *args: Any, allow_pickle: bool = False, **kwds: Any
) -> None:
    _check_options(allow_pickle)
    _write_archive(file, _named(args, kwds), deflate=True)


# Reading -----------------------------------------------------------------------------


def _read_text(file: Any) -> str:
    # Only the length decides how much is read, and is bounded: a forged one makes no memory.
    start = file.read(len(npy.MAGIC_PREFIX) + 2)
    width = _LENGTHS.get(start[-2:])
    if not start.startswith(npy.MAGIC_PREFIX) or width is None:
        raise ValueError("this holds no array in numpy's format")
    length = int.from_bytes(file.read(width), "little")
    if length > _HEADER_BYTES:
        raise ValueError(f"the header of the array has {length} bytes")
    text: str = file.read(length).decode("utf-8" if start[-2:] == b"\3\0" else "latin1")
    return text


def _read_header(file: Any) -> tuple[tuple[int, ...], bool, Any]:
    """Return shape, order and dtype, or raise ValueError."""
    try:
        header = ast.literal_eval(_read_text(file).strip())
        dtype, shape = npy.descr_to_dtype(header["descr"]), header["shape"]
    except (SyntaxError, TypeError, KeyError, RecursionError) as error:
        message = f"the header of the array cannot be read: {type(error).__name__}"
        raise ValueError(message) from None
    _check_dtype(dtype)
    known = type(shape) is tuple and all(type(one) is int and one >= 0 for one in shape)
    if not known:
        raise ValueError("the header of the array names no shape")
    return shape, bool(header.get("fortran_order")), dtype


def _read_array(file: Any, length: int) -> Any:
    """Return the next array of `file`, which has `length` bytes left at most."""
    shape, is_fortran, dtype = _read_header(file)
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    data = file.read(size) if size <= length else b""
    if len(data) != size:
        raise ValueError(f"Failed to read all data for array: {size} bytes are missing")
    flat = np.frombuffer(data, dtype).copy()
    return flat.reshape(shape, order="F" if is_fortran else "C")


class NpzFile:
    """What `load` makes of several arrays: a mapping that gives a new array each time."""

    __slots__ = ("__arrays",)

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.__arrays = arrays

    @property
    def files(self) -> list[str]:
        return list(self.__arrays)

    def __getitem__(self, name: Any) -> Any:
        if type(name) is str:
            name = name.removesuffix(".npy")
        if name not in self.__arrays:
            raise KeyError(f"{name!r:.64} is not a file in the archive")
        return self.__arrays[name].copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.__arrays)

    def __contains__(self, name: object) -> bool:
        return name in self.__arrays

    def keys(self) -> list[str]:
        return self.files

    def values(self) -> list[Any]:
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Any]]:
        return [(name, self[name]) for name in self]

    def get(self, name: Any, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def close(self) -> None:
        # Everything is in memory
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        return None


def _read_archive(data: bytes) -> NpzFile:
    return NpzFile(
        {
            name.removesuffix(".npy"): _read_array(io.BytesIO(content), len(content))
            for name, content in read_members(data)
        }
    )


def load(
    file: Any, mmap_mode: Any = None, allow_pickle: bool = False, **options: Any
) -> Any:
    # Options about pickles mean nothing here
    del options
    _check_options(allow_pickle, mmap_mode)
    start = _check_file(file).tell()
    data = file.read()
    if data.startswith(_ZIP):
        return _read_archive(data)
    inner = io.BytesIO(data)
    array = _read_array(inner, len(data))
    file.seek(start + inner.tell())
    return array


FILE_FUNCTIONS = by_name(load, save, savez, savez_compressed)


# Tables of numbers as text: `numpy.loadtxt` and kin, from memory and never from files


_IN_MEMORY = (io.StringIO, io.BytesIO)


def _check_memory(source: Any) -> Any:
    """Return `source` if numpy will find it in memory.

    A class of the task may call itself what it likes: only exact library classes and
    plain sequences of lines reach numpy, which opens everything that looks like a path.
    """
    if type(source) in _IN_MEMORY or type(source) in {list, tuple}:
        return source
    if isinstance(source, str | bytes) or hasattr(source, "__fspath__"):
        raise FileNotFoundError("a task has no files: read from io.StringIO(text)")
    return iter(list(source))


def loadtxt(fname: Any, *args: Any, **options: Any) -> Any:
    return np.loadtxt(_check_memory(fname), *args, **options)


def genfromtxt(fname: Any, *args: Any, **options: Any) -> Any:
    return np.genfromtxt(_check_memory(fname), *args, **options)


def fromregex(file: Any, *args: Any, **options: Any) -> Any:
    if type(file) not in _IN_MEMORY:
        raise FileNotFoundError("a task has no files: read from io.StringIO(text)")
    return np.fromregex(file, *args, **options)


def savetxt(fname: Any, X: Any, *args: Any, **options: Any) -> None:  # noqa: N803 - numpy's names
    if type(fname) not in _IN_MEMORY:
        raise FileNotFoundError("a task has no files: write to io.StringIO()")
    np.savetxt(fname, X, *args, **options)


TEXT_FUNCTIONS = by_name(fromregex, genfromtxt, loadtxt, savetxt)
