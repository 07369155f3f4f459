"""What may be in a frozen tree: one committed list of modules and libraries for each part.

A build takes exactly what its list names and fails where something is missing or something
else would be needed; nothing is guessed from import statements. A level's list is what
the zygote has loaded before its jails close, since nothing can be imported later; a
library's (``library-NAME``) is what it adds to that. A flavor's contents are its lists
united; the tests compare them with what lies in the built archives.

    [modules]       import names, of the standard library and of packages
    [libraries]     shared libraries that modules are linked with, without versions
    [sources]       modules whose source text is read when they are imported
    [data]          further files, by path below the import root
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from importlib import resources

from stoilo.core.errors import InternalError, UsageError

_SECTIONS = ("modules", "libraries", "sources", "data")
_LINE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_VERSIONED = re.compile(r"(.+?)(?:-[0-9a-f]{8})*\.so(?:\.[0-9A-Za-z.]+)?")


PLATFORM_DATA = "_sysconfigdata"
"""How lists name the module of `sysconfig` that is called after the interpreter's platform."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The committed contents of one part; each field is sorted."""

    modules: tuple[str, ...]
    libraries: tuple[str, ...]
    sources: tuple[str, ...]
    data: tuple[str, ...]


def library_stem(name: str) -> str:
    """Return a shared library's name without version and without a wheel's own mark.

    ``libscipy_openblas64_-fdde5778.so`` and ``libz.so.1.2.13`` are ``libscipy_openblas64_``
    and ``libz``.
    """
    match = _VERSIONED.fullmatch(name)
    return match[1] if match else name


def parse_contents(text: str) -> Contents:
    """Parse the text of a list, which comes with the package; raises ``STO-F012``."""
    found: dict[str, list[str]] = {name: [] for name in _SECTIONS}
    section = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if line[1:-1] in _SECTIONS and line == f"[{line[1:-1]}]":
            section = line[1:-1]
        elif line and (not section or not _LINE.fullmatch(line)):
            raise InternalError(
                "STO-F012", f"line {number} of the list is {line[:60]!r}"
            )
        elif line:
            found[section].append(line)
    for name, lines in found.items():
        if lines != sorted(set(lines)):
            raise InternalError("STO-F012", f"{name} must be sorted, each once")
    return Contents(*(tuple(found[name]) for name in _SECTIONS))


def unite_contents(lists: Iterable[Contents]) -> Contents:
    """Return what lies in any of `lists`."""
    columns = zip(*map(astuple, lists), strict=True)
    return Contents(*(tuple(sorted(set().union(*column))) for column in columns))


def load_contents(part: str) -> Contents:
    """Return the committed list of `part`, or raise ``STO-F014`` when there is none."""
    folder = resources.files("stoilo.flavors") / "contents"
    page = folder / f"{part}.txt"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,72}", part) or not page.is_file():
        raise UsageError("STO-F014", f"there is no list of contents for {part[:40]!r}")
    return parse_contents(page.read_text("ascii"))
