"""The volunteer's own opt-in file: what this computer may be asked to run.

It lies outside every directory that a project can write, is read without following links,
must belong to this user or to root and be writable by nobody else. Without a file the
opt-in is `pure` only. Preferences that a server sends can lower it and nothing else.
Neither environment nor arguments choose the file (I4).
"""

from __future__ import annotations

import os
import pwd
import stat
import tomllib  # noqa: F401 - msgspec imports it late; a frozen verifier must hold it
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoilo.core.errors import UsageError
from stoilo.core.limits import RunLimits, lowest_limits

LEVEL_ORDER: Final[dict[str, int]] = {"pure": 0, "numeric": 1, "tensor": 2, "gpu": 3}
"""Every level's place (design §4); a name not listed here cannot be opted into."""

SYSTEM_FILE: Final = Path("/etc/stoilo/optin.toml")
MAX_FILE_BYTES: Final = 16 * 1024
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_Amount = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_LevelName = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": sorted(LEVEL_ORDER)})
]


class OptInLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``[limits]`` table; absent means no own limit.

    Attributes:
        cpu_s: processor time, s.
        wall_s: elapsed time, s.
        memory_bytes: address space above what the warm zygote already holds.
        result_bytes: encoded result.
        output_bytes: captured print output.
        threads: 1 means no thread can be started.
    """

    cpu_s: _Amount = 2**53
    wall_s: _Amount = 2**53
    memory_bytes: _Amount = 2**53
    result_bytes: _Amount = 2**53
    output_bytes: _Amount = 2**53
    threads: _Amount = 2**53


class OptInFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A volunteer's opt-in file: what this computer may be asked to run.

    Attributes:
        max_level: highest level; nothing but `pure` unless said.
        require_review: only tasks that a reviewer signed.
        require_public_source: only tasks whose source may be published.
        topics: when given, only tasks that carry one of these.
        limits: this host's own limits; the lowest of admission, level and this holds.
    """

    max_level: _LevelName = "pure"
    require_review: bool = False
    require_public_source: bool = False
    topics: tuple[str, ...] = ()
    limits: OptInLimits = OptInLimits()


@dataclass(frozen=True, slots=True)
class OptIn:
    """What a volunteer allows."""

    max_level: str = "pure"  # highest level, by name
    require_review: bool = False  # only tasks that a reviewer signed
    require_public_source: bool = False  # only tasks whose source may be published
    # when not empty, only tasks that carry one of these
    topics: frozenset[str] = frozenset()
    limits: RunLimits | None = None  # this host's own limits, None for none


@dataclass(frozen=True, slots=True)
class ServerPreferences:
    """What a project's preferences ask for; hostile, so it can only lower."""

    # highest level chosen on the project's page; an unknown name means `pure`
    max_level: str = "gpu"
    require_review: bool = False  # only reviewed tasks
    require_public_source: bool = False  # only tasks of public source


def default_files() -> tuple[Path, ...]:
    """Return where opt-in files may lie: the system's and this user's own.

    The home directory is the password database's, not the environment's.
    """
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a container's user: no home, so no file in it
        return (SYSTEM_FILE,)
    return SYSTEM_FILE, home / ".config" / "stoilo" / "optin.toml"


def load_opt_in(
    files: Sequence[Path] | None = None, *, server_writable: Sequence[Path] = ()
) -> OptIn:
    """Return the lowest of the opt-in files that exist; `pure` when none does.

    Raises:
        UsageError: STO-A060 when a file cannot be trusted or read.
    """
    found = []
    for path in default_files() if files is None else files:
        text = _read(path, server_writable)
        if text is not None:
            found.append(parse_opt_in(text, name=str(path.name)))
    if not found:
        return OptIn()
    lowest = found[0]
    for other in found[1:]:
        lowest = _lowest(lowest, other)
    return lowest


def parse_opt_in(text: bytes, *, name: str = "opt-in file") -> OptIn:
    """Parse an opt-in file's TOML; raises ``STO-A060`` naming what is wrong."""
    try:
        parsed = msgspec.toml.decode(text, type=OptInFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError("STO-A060", f"{name}: {error}") from error
    if parsed.max_level not in LEVEL_ORDER:
        raise UsageError(
            "STO-A060",
            f"{name}: there is no level {parsed.max_level[:40]!r}",
            hint=f"levels are {', '.join(LEVEL_ORDER)}",
        )
    limits = RunLimits(**msgspec.structs.asdict(parsed.limits))
    return OptIn(
        max_level=parsed.max_level,
        require_review=parsed.require_review,
        require_public_source=parsed.require_public_source,
        topics=frozenset(parsed.topics),
        limits=None if parsed.limits == OptInLimits() else limits,
    )


def lower_by_server(own: OptIn, asked: ServerPreferences) -> OptIn:
    """Return `own`, lowered where the server's preferences ask for less."""
    order = min(LEVEL_ORDER[own.max_level], LEVEL_ORDER.get(asked.max_level, 0))
    return replace(
        own,
        max_level=_level_at(order),
        require_review=own.require_review or asked.require_review,
        require_public_source=(
            own.require_public_source or asked.require_public_source
        ),
    )


def _lowest(one: OptIn, other: OptIn) -> OptIn:
    lowered = lower_by_server(
        one,
        ServerPreferences(
            other.max_level, other.require_review, other.require_public_source
        ),
    )
    topics = one.topics & other.topics if one.topics and other.topics else frozenset()
    if one.topics and other.topics and not topics:
        raise UsageError("STO-A060", "the opt-in files have no topic in common")
    limits = [each for each in (one.limits, other.limits) if each is not None]
    return replace(
        lowered,
        topics=topics or one.topics | other.topics,
        limits=lowest_limits(*limits) if limits else None,
    )


def _level_at(order: int) -> str:
    return next(name for name, place in LEVEL_ORDER.items() if place == order)


def _read(path: Path, server_writable: Sequence[Path]) -> bytes | None:
    """Return the file's bytes, None when there is none; refuse what others can write."""
    real = path.parent.resolve()
    for folder in server_writable:
        if real.is_relative_to(folder.resolve()):
            raise UsageError("STO-A060", f"{path.name} lies where a server can write")
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError("STO-A060", f"{path.name} cannot be opened") from error
    try:
        _check_owner(os.fstat(descriptor), path)
    except UsageError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise UsageError("STO-A060", f"{path.name} is too large")
    return text


def _check_owner(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("STO-A060", f"{path.name} is not a plain file")
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise UsageError(
            "STO-A060",
            f"{path.name} can be written by somebody else",
            hint=f"run: chmod go-w {path.name}",
        )
