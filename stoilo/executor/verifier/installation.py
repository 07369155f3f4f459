"""This computer's own: its directories, and what its owner lets it be asked to run.

    <home>/verifier/<tree digest>/   the launcher's
    <home>/flavors/<tree digest>/    unpacked runtimes
    <home>/state/<origin's digest>/  release cache, memory of time and revocations, floors

The home is found from where the process stands and from nothing that a server sends (I4): a
BOINC slot ``<data>/slots/<digits>`` has it at ``<data>/stoilo``, beside the directories that a
project fills; anything else uses ``$HOME/.local/share/stoilo``. The launcher in C follows the
same rule.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
import tomllib  # noqa: F401 - msgspec imports it late; a frozen verifier must hold it
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.core.files import write_durably
from stoilo.core.types import RunLimits, lowest_limits

HOME_NAME: Final = "stoilo"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Home:
    """An opened home."""

    path: Path  # absolute, 0700, this user's own
    # the BOINC data directory it lies in, None outside of BOINC
    data: Path | None = None

    @property
    def flavors(self) -> Path:
        """Unpacked runtimes, by tree digest."""
        return self.path / "flavors"

    @property
    def verifiers(self) -> Path:
        """Unpacked verifiers, by tree digest; the launcher's."""
        return self.path / "verifier"

    @property
    def server_writable(self) -> tuple[Path, ...]:
        """Directories beside this home that a project fills."""
        if self.data is None:
            return ()
        return self.data / "projects", self.data / "slots"

    def state(self, origin: str) -> Path:
        """Return the directory of what is remembered about project `origin`."""
        return self.path / "state" / hashlib.sha256(origin.encode()).hexdigest()[:32]


def is_slot(directory: Path) -> bool:
    """Whether a real path is a BOINC slot: ``<data>/slots/<digits>``."""
    number = directory.name
    return (
        number.isascii()
        and number.isdigit()
        and directory.parent.name == "slots"
        and directory.parent.parent != directory.parent
    )


def find_home(cwd: Path, environment: Mapping[str, str]) -> Home:
    """Return where the home is, without touching it.

    `environment`: only HOME is read, and only outside of a slot.

    Raises:
        TrustError: STO-F037 when there is no place that could be trusted.
    """
    # A link could make any directory look like a slot.
    real = cwd.resolve()
    if is_slot(real):
        data = real.parent.parent
        return Home(data / HOME_NAME, data)
    base = environment.get("HOME", "")
    if not base.startswith("/"):
        raise _refused("HOME is not an absolute path and this is no BOINC slot")
    try:
        owner = Path(base).stat().st_uid
    except OSError as error:
        raise _refused("HOME cannot be read") from error
    # With `sudo` HOME may stay another user's, who could then change our memory.
    if owner != os.geteuid():
        raise _refused("HOME belongs to somebody else")
    return Home(Path(base) / ".local" / "share" / HOME_NAME)


def open_home(home: Home) -> Home:
    """Make the home and its directories where missing, and check them.

    Raises:
        TrustError: STO-F037 a directory is a link, somebody else's, or open to others.
        InternalError: STO-X008 it cannot be made.
    """
    if home.data is None:  # ~/.local/share: a user may let others read it
        for directory in (home.path.parent.parent, home.path.parent):
            own_directory(directory, others=0o022)
    for directory in (home.path, home.flavors, home.verifiers, home.path / "state"):
        own_directory(directory)
    return home


def own_directory(directory: Path, others: int = 0o077) -> None:
    """Make `directory` (0700) unless it is there, and check whose it is.

    `others`: the mode bits that it must not have.

    Raises:
        TrustError: STO-F037 it is a link, somebody else's, or open to others.
        InternalError: STO-X008 it cannot be made.
    """
    with disk_trouble(f"{directory.name} cannot be made"), suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    try:
        # Looked at through the descriptor: by its name it could be exchanged in
        # between.
        descriptor = os.open(directory, _DIRECTORY)
    except OSError as error:
        raise _refused(f"{directory.name} is a link or no directory") from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & others:
        raise _refused(f"{directory.name} is open to others or somebody else's")


def _refused(reason: str) -> TrustError:
    return TrustError(
        "STO-F037",
        f"this computer's own directory for stoilo cannot be trusted: {reason}",
        hint="it must be a plain directory of the user who runs this, mode 0700",
    )


@contextmanager
def disk_trouble(words: str) -> Iterator[None]:
    """Raise ``STO-X008`` for an OSError: this machine's trouble, no reason to distrust."""
    try:
        yield
    except OSError as error:
        raise InternalError(
            "STO-X008",
            f"{words} (errno {error.errno})",
            hint="make room on the disk, or make it writable",
        ) from error


def replace_file(path: Path, data: bytes) -> None:
    """Give a file of this computer's own the content `data`, at once and durably.

    Raises:
        InternalError: ``STO-X008``.
    """
    with disk_trouble(f"{path.name} cannot be written"):
        write_durably(path, data, mode=0o600)


# The volunteer's own opt-in file: what this computer may be asked to run
#
# It lies outside every directory that a project can write, is read without following links,
# must belong to this user or to root and be writable by nobody else. Without a file the
# opt-in is `pure` only. Preferences that a server sends can lower it and nothing else.
# Neither environment nor arguments choose the file (I4).


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
        text = _read_opt_in(path, server_writable)
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


def _read_opt_in(path: Path, server_writable: Sequence[Path]) -> bytes | None:
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
