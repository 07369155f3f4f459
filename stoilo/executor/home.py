"""The volunteer's home: where trees, memory and floors of this computer lie (design I4).

    <home>/verifier/<tree digest>/   the launcher's
    <home>/flavors/<tree digest>/    unpacked runtimes
    <home>/state/<origin's digest>/  release cache, memory of time and revocations, floors

It is found from where the process stands and from nothing that a server sends: a BOINC slot
``<data>/slots/<digits>`` has its home at ``<data>/stoilo``, beside the directories that a
project fills; anything else uses ``$HOME/.local/share/stoilo``. The launcher in C follows
the same rule.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoilo.core.errors import InternalError, TrustError

__all__ = ["HOME_NAME", "Home", "find_home", "is_slot", "open_home", "own_directory"]

HOME_NAME: Final = "stoilo"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Home:
    """An opened home.

    Attributes:
        path: absolute, 0700, this user's own.
        data: the BOINC data directory it lies in, None outside of BOINC.
    """

    path: Path
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

    Args:
        cwd: where the process stands.
        environment: only HOME is read, and only outside of a slot.

    Raises:
        TrustError: STO-F037 when there is no place that could be trusted.
    """
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

    Args:
        directory: its parent exists.
        others: the mode bits that it must not have.

    Raises:
        TrustError: STO-F037 it is a link, somebody else's, or open to others.
        InternalError: STO-X008 it cannot be made.
    """
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise _disk(directory.name, error) from error
    try:
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
    """Return ``STO-F037``."""
    return TrustError(
        "STO-F037",
        f"this computer's own directory for stoilo cannot be trusted: {reason}",
        hint="it must be a plain directory of the user who runs this, mode 0700",
    )


def _disk(name: str, error: OSError) -> InternalError:
    """Return ``STO-X008``."""
    return InternalError(
        "STO-X008",
        f"{name} cannot be made (errno {error.errno})",
        hint="make room on the disk, or make it writable",
    )
