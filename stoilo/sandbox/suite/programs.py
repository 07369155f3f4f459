"""What surrounds a case: the ground that it must not reach, and the program that is run."""

from __future__ import annotations

import importlib.util
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stoilo.core.levels import Level
from stoilo.core.libraries import Library, level_order, load_libraries
from stoilo.sandbox.suite.case import Case, Kind

# What lies outside the jail for a program to reach: a canary to read, a mark to make


REACHED = "REACHED"
"""What a program says that reached something inside its own process."""


NOW = 1_700_000_000
"""What the clock says in every run, s since 1970."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A temporary folder that any uid may use, so that no permission stands in for us."""

    folder: Path  # the folder, deleted at the end of the ``with``
    token: str  # random text inside the canary

    @classmethod
    def make(cls) -> Self:
        """Make a folder with a canary."""
        folder = Path(tempfile.mkdtemp(prefix="stoilo-suite-", dir=_open_place()))
        folder.chmod(0o777)  # a jailed uid must be able to make the mark
        ground = cls(folder, secrets.token_hex(16))
        ground.canary.write_text(ground.token)
        ground.canary.chmod(0o644)
        return ground

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def canary(self) -> Path:
        """A file with the token."""
        return self.folder / "canary"

    @property
    def mark(self) -> Path:
        """A path where nothing must come to be."""
        return self.folder / "mark"

    def was_reached(self, *texts: str) -> bool:
        """Whether the token stands in what came back, or the mark was made.

        The mark is taken away, so that the next run of the case starts afresh.
        """
        marked = self.mark.exists() or self.mark.is_symlink()
        if self.mark.is_dir() and not self.mark.is_symlink():
            shutil.rmtree(self.mark, ignore_errors=True)
        else:
            self.mark.unlink(missing_ok=True)
        return marked or any(self.token in text for text in texts)


def _open_place() -> Path:
    usual = Path(tempfile.gettempdir()).resolve()
    for place in (usual, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - checked below
        if all(part.stat().st_mode & 0o001 for part in (place, *place.parents)):
            return place
    return usual


_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w., \t]+)", re.MULTILINE)
_VALIDATOR = re.compile(r"^def (init|compare)\(", re.MULTILINE)
_CLUMSY = frozenset(
    {"antigravity", "idlelib", "this", "tkinter", "turtle", "turtledemo"}
)
"""Modules of the standard library whose import does something to see."""

LIBRARIES = frozenset({"numpy", "torch"})
"""Libraries whose modules a probe may import, at levels that have them."""

_POWERS = frozenset(
    {
        "_posixsubprocess",
        "ctypes",
        "mmap",
        "posix",
        "pty",
        "resource",
        "select",
        "signal",
    }
    | {"socket", "subprocess", "threading", "tempfile", "shutil", "pathlib", "pickle"}
    | {
        "importlib",
        "builtins",
        "inspect",
        "gc",
        "io",
        "traceback",
        "_io",
        "unicodedata",
    }
)
"""What an escape would use: every probe finds them loaded."""

_RESULT_END = """
import os as _os
_frame = run({kwargs})
_chunks = _frame if isinstance(_frame, list) else [len(_frame).to_bytes(8, "big"), _frame]
for _chunk in _chunks:
    while _chunk:
        _chunk = _chunk[_os.write(4, _chunk):]
_os._exit(0)
"""


def arguments_of(case: Case, ground: Ground) -> dict[str, Any]:
    """Return the dict that a task's function gets."""
    places = {"canary": str(ground.canary), "mark": str(ground.mark)}
    return {**case.header.kwargs, **places}


def validator_of(case: Case) -> str:
    """Return ``init`` or ``compare``: the last of them that a validator case defines."""
    found: list[str] = _VALIDATOR.findall(case.text)
    return found[-1] if found else "compare"


def as_probe(case: Case, ground: Ground) -> str:
    """Return the program for the kernel layer alone: everything above it is off."""
    kwargs = repr(arguments_of(case, ground))
    match case.header.run:
        case Kind.PROBE:
            places = f"CANARY = {str(ground.canary)!r}; MARK = {str(ground.mark)!r}"
            return f"{places}\n{case.text}"
        case Kind.RESULT:
            return f"{case.text}\n{_RESULT_END.format(kwargs=kwargs)}"
        case Kind.VALIDATOR:
            entry = validator_of(case)
            values = kwargs if entry == "init" else f"{kwargs}, {kwargs}"
            return f"{case.text}\n\nprint({entry}({values}))\n"
        case _:
            return f"{case.text}\n\nprint(run({kwargs}))\n"


def imports_of(case: Case) -> frozenset[str]:
    """Return the modules of the standard library, numpy and torch that it seems to import.

    A search in the text, no parsing: the text is hostile and this is our own process.
    """
    found = {*_POWERS, *case.header.preload, *_spelled_imports(case)}
    known = (sys.stdlib_module_names | LIBRARIES) - _CLUMSY
    return frozenset(name for name in found if name.partition(".")[0] in known)


def libraries_of(case: Case, level: Level) -> tuple[Library, ...]:
    """Return the described libraries that it seems to import and `level` may have."""
    roots = {name.partition(".")[0] for name in _spelled_imports(case)}
    found = load_libraries(sorted(roots))
    return tuple(one for one in found if level_order(one) <= level.order)


def _spelled_imports(case: Case) -> Iterator[str]:
    for match in _IMPORT.finditer(case.text):
        for part in match[1].partition(" import ")[0].split(","):
            yield part.strip().partition(" ")[0]


def preload_of(cases: Iterable[Case]) -> tuple[str, ...]:
    """Return every module that a probe of these cases may need and that exists here."""
    wanted = set[str]().union(*map(imports_of, cases))
    return tuple(sorted(name for name in wanted if _exists(name)))


def _exists(name: str) -> bool:
    """Whether the module is here; only the parents of standard ones are imported."""
    top, *below = name.split(".")
    try:
        if top not in LIBRARIES:
            return importlib.util.find_spec(name) is not None
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return False
    places = found.submodule_search_locations if found is not None else None
    return any(_has_module(Path(place, *below)) for place in places or ())


def _has_module(path: Path) -> bool:
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()
