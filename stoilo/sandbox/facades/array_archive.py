"""Archives of arrays: as much of the ZIP format as ``numpy.savez`` writes, and nothing else.

Members are stored or deflated. Every size is compared with the bytes that are there, and a
member is unpacked to the size that it announces at most. Source: PKWARE's APPNOTE.TXT.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

__all__ = ["read_members", "write_members"]

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
