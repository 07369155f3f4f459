"""One case: a program and, in a comment block of PEP 723's form, how it must end.

A case file is as hostile as its program: the header is found by a regular expression on
bounded text and parsed as TOML into a fixed set of keys; the program is never parsed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from stoilo.core.errors import UsageError

CASE_BYTES = 1 << 20
"""Most bytes of one case file."""

EXPANDED_CHARS = 8 << 20
"""Most characters of a program after ``expand``."""

_BLOCK = re.compile(
    r"^# /// stoilo-case[ ]*\r?\n((?:#(?:| [^\n]*)\r?\n)*?)# ///[ ]*(?:\r?\n|\Z)",
    re.MULTILINE,
)


_VERSION = msgspec.Meta(pattern=r"^(\d+\.\d+(\.\d+)?)?\Z")


class Kind(StrEnum):
    """What is done with a case's program."""

    TASK = "task"
    PROBE = "probe"
    VALIDATOR = "validator"
    CHECK = "check"
    RESULT = "result"


class Stop(StrEnum):
    """Which layer must stop a case; `NONE` marks a benign one."""

    GATE = "gate"
    LANGUAGE = "language"
    KERNEL = "kernel"
    LIMITS = "limits"
    RESULT = "result"
    VALIDATION = "validation"
    NONE = ""


class Goal(StrEnum):
    """What a program is after."""

    OUTSIDE = "outside"
    INSIDE = "inside"


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a case's header; docs/reference/cases.md explains each."""

    # What is tried, in a few words; one idea has at most five cases in a suite
    idea: str
    run: Kind = Kind.TASK  # which parts run the program
    # Lowest level at which it makes sense; empty: ``pure``, a probe every level
    level: str = ""
    wider: bool = False  # whether it is run at every wider level too
    # The layer that must stop it; empty for a benign program
    stopped_by: Stop = Stop.NONE
    code: str = ""  # the stable code to be seen, empty for any
    syscall: str = ""  # the system call at which the kernel layer must kill it
    limit: str = ""  # the limit that must be hit
    # How the program's own error must begin (a call that was denied politely)
    error: str = ""
    # What a validator's answer counts as: ``raised``, ``not_bool``, ``false``
    verdict: str = ""
    # ``outside`` reads the canary or makes the mark; ``inside`` says ``REACHED``
    goal: Goal = Goal.OUTSIDE
    # Modules that a probe needs, imported before the jail closes
    preload: tuple[str, ...] = ()
    kwargs: dict[str, Any] = {}  # added to the dict that a task's function gets
    limits: dict[str, int] = {}  # limits of the run that differ from the suite's
    source: str = ""  # where the idea is published
    # ``plain`` must reach; ``root`` must reach for root alone, ``host`` where the host
    # allows it; ``none`` has a meaning in a jail only. Where a control does not reach, the
    # case does not count
    control: Literal["plain", "root", "host", "none"] = "plain"
    # The CPython, as ``3.11.7``, from which on the control must reach
    first_python: Annotated[str, _VERSION] = ""
    escaped: bool = False  # the program is written with Python's string escapes
    encoding: str = "utf-8"  # how an escaped program becomes bytes
    # Word → [text, times]: ``@word@`` in the program stands for that much text
    expand: dict[str, tuple[str, int]] = {}


class Case(msgspec.Struct, frozen=True):
    """A case as it is run."""

    name: str  # path below the suite's folder, without ``.py``
    header: Header  # what the file says of itself
    program: bytes  # the bytes to run; hostile

    @property
    def benign(self) -> bool:
        """Whether the program must succeed."""
        return self.header.stopped_by is Stop.NONE

    @property
    def text(self) -> str:
        """The program as text; what is no UTF-8 is replaced."""
        return self.program.decode("utf-8", "replace")


def _broken(name: str, reason: str) -> UsageError:
    return UsageError(
        "STO-S040",
        f"the case {name} cannot be read: {reason}",
        hint="docs/reference/cases.md shows the form",
    )


def _expand(text: str, header: Header, name: str) -> str:
    for word, (part, times) in header.expand.items():
        if len(part) * times > EXPANDED_CHARS:
            raise _broken(name, f"expand.{word} makes too long a program")
        text = text.replace(f"@{word}@", part * times)
        if len(text) > EXPANDED_CHARS:
            raise _broken(name, f"expand.{word} makes too long a program")
    return text


def _program(header: Header, data: bytes, body: str, name: str) -> bytes:
    if not header.escaped and not header.expand:
        return data
    try:
        if header.escaped:
            body = body.encode("raw_unicode_escape").decode("unicode_escape")
        return _expand(body, header, name).encode(header.encoding)
    except (ValueError, LookupError) as error:
        raise _broken(name, f"the program cannot be made: {error}") from error


def _parse_header(text: str, name: str) -> tuple[Header, int]:
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != 1:
        raise _broken(name, f"{len(blocks)} headers instead of one")
    lines = blocks[0][1].splitlines()
    try:
        header = msgspec.toml.decode("\n".join(line[2:] for line in lines), type=Header)
    except msgspec.MsgspecError as error:
        raise _broken(name, str(error)) from error
    return header, blocks[0].end()


def _check_header(header: Header, name: str) -> None:
    attack_keys = (header.code, header.syscall, header.limit, header.error)
    if header.stopped_by is Stop.NONE and any(attack_keys):
        raise _broken(name, "an expected ending without stopped_by")
    if header.stopped_by is Stop.VALIDATION and header.run is not Kind.VALIDATOR:
        raise _broken(name, "stopped_by validation needs run validator")
    if header.run is Kind.CHECK and header.stopped_by not in {Stop.GATE, Stop.NONE}:
        raise _broken(name, "run check ends at the gate")
    if header.syscall and header.stopped_by is not Stop.KERNEL:
        raise _broken(name, "a syscall is the kernel layer's word")
    if header.limit and header.stopped_by is not Stop.LIMITS:
        raise _broken(name, "a limit without stopped_by limits")


def parse_case(data: bytes, name: str) -> Case:
    """Return the case that the bytes of a file (untrusted) hold.

    Raises:
        UsageError: ``STO-S040``, no header, two of them, or a broken one.
    """
    if len(data) > CASE_BYTES:
        raise _broken(name, f"it is over {CASE_BYTES} bytes")
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _broken(name, "not UTF-8; write such programs escaped") from error
    header, end = _parse_header(text, name)
    _check_header(header, name)
    return Case(name, header, _program(header, data, text[end:], name))


def read_case(path: Path, root: Path) -> Case:
    """Return the case in `path`, named by its place below `root`; ``STO-S040``."""
    name = path.relative_to(root).with_suffix("").as_posix()
    try:
        with path.open("rb") as file:
            data = file.read(CASE_BYTES + 1)
    except OSError as error:
        raise _broken(name, error.strerror or "not readable") from error
    return parse_case(data, name)


def find_cases(root: Path) -> Iterator[Path]:
    """Yield every ``.py`` file below `root`, sorted; names with a dot in front are left."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if path.is_file() and not any(part.startswith((".", "__")) for part in parts):
            yield path
