"""What a frozen program holds, read without running or unmarshalling anything.

PyInstaller's program carries an archive behind its code: a table of entries, one of them
the compressed modules with a table of their own.
Source: PyInstaller 6, CArchive and PYZ formats.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.errors import TrustError
from stoilo.flavors.contents import PLATFORM_DATA, library_stem

_COOKIE = struct.Struct("!8sIIII64s")
_MAGIC = b"MEI\014\013\012\013\016"
_ENTRY = struct.Struct("!IIIIBc")
_PROGRAM_BYTES = 1 << 30
_NAMES = 65_536
_EXTENSION = re.compile(r"(.+?)\.(?:cpython-[\w-]+|abi3)\.so|(.+?)\.so")
_LIBRARY = re.compile(r"lib[^/]*\.so(\.[0-9.]+)?")


@dataclass(frozen=True, slots=True)
class Inside:
    """Everything that a tree holds; each field sorted."""

    # import names: compressed, in the base library, and extension modules
    modules: tuple[str, ...]
    libraries: tuple[str, ...]  # shared libraries without versions
    scripts: tuple[str, ...]  # what the program runs, in order
    options: tuple[str, ...]  # what the boot loader is told
    files: tuple[str, ...]  # paths below `_internal` that are none of these


def look_inside(tree: Path, program: str) -> Inside:
    """Read the contents of the frozen tree at `tree`; raises ``STO-F006``."""
    scripts, options, modules = _read_program(_read(tree / program))
    files: list[str] = []
    libraries: list[str] = []
    internal = tree / "_internal"
    for path in sorted(p for p in internal.rglob("*") if p.is_file()):
        relative = path.relative_to(internal).as_posix()
        if relative == "base_library.zip":
            modules += _zipped_names(path)
        elif _LIBRARY.fullmatch(path.name) and ".cpython-" not in path.name:
            libraries.append(library_stem(path.name))
        elif path.suffix == ".so":
            modules.append(_extension_name(relative))
        else:
            files.append(relative)
    return Inside(
        tuple(sorted(_listed_name(name) for name in modules)),
        tuple(sorted(libraries)),
        tuple(scripts),
        tuple(options),
        tuple(sorted(files)),
    )


def _listed_name(name: str) -> str:
    return PLATFORM_DATA if name.startswith(PLATFORM_DATA) else name


def _read_program(data: bytes) -> tuple[list[str], list[str], list[str]]:
    """Return scripts, options and modules of the archive behind a program."""
    scripts, options, modules = [], [], []
    for kind, name, content in _entries(data):
        if kind == b"s":
            scripts.append(name)
        elif kind == b"o":
            options.append(name)
        elif kind == b"z":
            modules += read_module_names(content)
        elif kind not in {b"m", b"M"}:
            raise _odd(f"an entry of kind {kind!r}")
        elif not name.startswith("pyi"):  # the boot loader's own
            modules.append(name)
    return scripts, options, modules


def _read(program: Path) -> bytes:
    try:
        with program.open("rb") as file:
            data = file.read(_PROGRAM_BYTES + 1)
    except OSError as error:
        raise _odd(f"no program {program.name!r}") from error
    if len(data) > _PROGRAM_BYTES:
        raise _odd("it is too large")
    return data


def _entries(program: bytes) -> Iterator[tuple[bytes, str, bytes]]:
    """Yield kind, name and bytes of each entry of the archive behind a program."""
    at = program.rfind(_MAGIC)
    if at < 0 or at + _COOKIE.size > len(program):
        raise _odd("it carries no archive")
    _, length, offset, size, _, _ = _COOKIE.unpack_from(program, at)
    start = at + _COOKIE.size - length
    table = program[start + offset : start + offset + size] if start >= 0 else b""
    place = 0
    while place < len(table):
        if place + _ENTRY.size > len(table):
            raise _odd("its table ends too early")
        whole, where, packed, _, _, kind = _ENTRY.unpack_from(table, place)
        if whole < _ENTRY.size:
            raise _odd("its table is broken")
        name = table[place + _ENTRY.size : place + whole].rstrip(b"\0")
        content = program[start + where : start + where + packed]
        yield kind, name.decode("utf-8", "replace"), content
        place += whole


def read_module_names(archive: bytes) -> list[str]:
    """Return the import names in the table of a module archive; raises ``STO-F006``.

    The table is marshalled: a list (or dict) of names, each with three numbers. Only these
    few forms are read, by hand, for `marshal` trusts its input.
    """
    if archive[:4] != b"PYZ\0" or len(archive) < 12:
        raise _odd("its modules are not in the known form")
    (offset,) = struct.unpack_from("!I", archive, 8)
    reader = _Marshalled(archive[offset:])
    table = reader.value()
    names = [row[0] for row in table if isinstance(row, list) and row]
    if len(names) != len(table) or not all(isinstance(name, str) for name in names):
        raise _odd("its table of modules is not in the known form")
    return [str(name) for name in names]


class _Marshalled:
    """The part of Python's marshal format that a table of modules uses."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._seen: list[object] = []

    def _take(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if size < 0 or len(piece) != size:
            raise _odd("its table of modules ends too early")
        self._at += size
        return piece

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "little", signed=True)

    def value(self) -> list[object]:
        """Return the whole table."""
        table = self._object(0)
        if not isinstance(table, list):
            raise _odd("its table of modules is not a list")
        return table

    def _object(self, depth: int) -> object:
        (kind,) = self._take(1)
        flagged, kind = kind & 0x80, kind & 0x7F
        place = len(self._seen)
        if flagged:
            self._seen.append(None)
        found = self._read(chr(kind), depth)
        if flagged:
            self._seen[place] = found
        return found

    def _read(self, kind: str, depth: int) -> object:
        if kind == "i":
            return self._number()
        if kind == "r":
            index = self._number()
            if not 0 <= index < len(self._seen):
                raise _odd("its table of modules refers to nothing")
            return self._seen[index]
        if kind in "zZ":
            return self._take(self._take(1)[0]).decode("latin-1")
        if kind in "aAut":
            return self._take(self._number()).decode("utf-8", "replace")
        if kind in "[()" and depth < 3:
            size = self._take(1)[0] if kind == ")" else self._number()
            if not 0 <= size <= _NAMES:
                raise _odd("its table of modules is too long")
            return [self._object(depth + 1) for _ in range(size)]
        raise _odd(f"its table of modules holds {kind!r}")


def _zipped_names(path: Path) -> list[str]:
    """Return the import names in the base library."""
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise _odd("its base library is not a zip file") from error
    plain = (name.removesuffix(".pyc").removesuffix("/__init__") for name in names)
    return [name.replace("/", ".") for name in plain]


def _extension_name(relative: str) -> str:
    """Return the import name of an extension module's file."""
    below = re.sub(r"\Apython3\.\d+/lib-dynload/", "", relative)
    match = _EXTENSION.fullmatch(below)
    return ((match[1] or match[2]) if match else below).replace("/", ".")


def _odd(reason: str) -> TrustError:
    return TrustError("STO-F006", f"the frozen program cannot be read: {reason}")
