"""This computer's own directories, and what this verifier was built with.

    <home>/verifier/<tree digest>/   the launcher's
    <home>/flavors/<tree digest>/    unpacked runtimes
    <home>/state/<origin's digest>/  release cache, memory of time and revocations, floors

The home is found from where the process stands and from nothing that a server sends (I4): a
BOINC slot ``<data>/slots/<digits>`` has it at ``<data>/stoilo``, beside the directories that a
project fills; anything else uses ``$HOME/.local/share/stoilo``. The launcher in C follows the
same rule. A frozen verifier takes its root from ``built.json`` in its own tree, whose digest
the launcher holds; an unfrozen one has none and takes it from ``--root FILE`` (design §3).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import write_durably
from stoilo.core.levels import load_levels, load_older_levels
from stoilo.executor.verifier.targets import LOWEST, Floors, InstalledRelease
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST

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


BUILT_FILE: Final = "built.json"
"""Beside this module, in the frozen tree only."""

MAX_BUILT_BYTES: Final = 1024 * 1024

_Version = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._+-]{1,64}\Z")]


class Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``built.json`` of one verifier."""

    format: Literal["stoilo-built/1"]  # version of this file
    part: Literal["verifier"]  # always the verifier
    platform: _Word  # for example ``x86_64-linux``
    version: _Word  # for people
    serial: _Version  # rises with every release of the verifier
    # of the source it was built from; empty when not said
    commit: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{0,64}\Z")]
    # TUF root metadata, base64: the only root this verifier knows
    root: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BUILT_BYTES)]
    # the project that it belongs to
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rehearsal: bool = False  # whether it belongs to a staging root
    development: bool = False  # whether roots of development and rehearsal are accepted
    floors: Floors = LOWEST  # lowest versions accepted

    def root_bytes(self) -> bytes:
        """Return the root metadata, as `parse_built` has checked it."""
        return base64.b64decode(self.root, validate=True)


def parse_built(data: bytes) -> Built:
    """Parse a built file, strictly; raises ``STO-F035``."""
    if len(data) > MAX_BUILT_BYTES:
        raise _broken("it is too large")
    try:
        built = msgspec.json.decode(data, type=Built)
        built.root_bytes()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _broken(str(error)[:200]) from error
    except (binascii.Error, ValueError) as error:
        raise _broken("its root is not base64") from error
    return built


def render_built(built: Built) -> bytes:
    """Return the file's bytes; equal for equal contents."""
    return msgspec.json.encode(built, order="sorted") + b"\n"


def is_frozen() -> bool:
    """Say whether this is a frozen program, which has no switches (I4)."""
    return bool(getattr(sys, "frozen", False))


def load_built(path: Path | None = None, *, frozen: bool | None = None) -> Built | None:
    """Return what this program was built with; None for an unfrozen one without it.

    `frozen`: whether the file must exist; None asks the interpreter.

    Raises:
        TrustError: STO-F035 when it is broken, or missing in a frozen program.
    """
    place = Path(__file__).with_name(BUILT_FILE) if path is None else path
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BUILT_BYTES + 1)
    except FileNotFoundError:
        if is_frozen() if frozen is None else frozen:
            raise _broken("there is none in this frozen program") from None
        return None
    except OSError as error:
        raise _broken("it cannot be read") from error
    return parse_built(data)


def _broken(reason: str) -> TrustError:
    return TrustError(
        "STO-F035",
        f"the built file of this verifier does not hold: {reason}",
        hint="fetch the program again from its project; it runs nothing like this",
    )


OLDER_LANGUAGES: Final[tuple[str, ...]] = ()
"""Digests of earlier language layers, newest first, whose admitted sources this one runs.

The source of an admitted task is always judged again, by this layer's own rules, before it
runs; an older digest here only says that such a task need not be admitted anew. When
`LANGUAGE_DIGEST` changes, the one before belongs here for as long as admissions live (14
days), unless the change closes a hole: then it must not."""


def installed_release() -> InstalledRelease:
    """Return what this package holds; raises ``STO-P001`` when a level is broken."""
    levels = (*load_levels(), *load_older_levels())
    return InstalledRelease(levels, LANGUAGE_DIGEST, languages=OLDER_LANGUAGES)


def replace_file(path: Path, data: bytes) -> None:
    """Give a file of this computer's own the content `data`, at once and durably.

    Raises:
        InternalError: ``STO-X008``.
    """
    with disk_trouble(f"{path.name} cannot be written"):
        write_durably(path, data, mode=0o600)
