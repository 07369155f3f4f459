"""The two programs of an app version: what a client starts, and what that starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stoilo.core.errors import UsageError

__all__ = ["VERIFIER_ARCHIVE", "Program", "ProgramSource"]

VERIFIER_ARCHIVE: Final = "stoilo-verifier.tar"
"""Open name under which the launcher finds the verifier."""


@dataclass(frozen=True, slots=True)
class Program:
    """The two files of an app version, as the project signed them for BOINC.

    Attributes:
        launcher: what is started.
        verifier: the archive that it unpacks once.
    """

    launcher: Path
    verifier: Path

    @classmethod
    def of(cls, launcher: Path) -> Program:
        """Return the program of `launcher`, its archive beside it.

        Raises:
            UsageError: STO-U004 one of the two is no file.
        """
        launcher = launcher.resolve()
        beside = (
            launcher.with_name(VERIFIER_ARCHIVE),
            launcher.with_name(f"{launcher.name}.tar"),
            launcher.parent.parent / "verifier" / f"{launcher.name}.tar",
        )
        verifier = next((path for path in beside if path.is_file()), None)
        if not launcher.is_file() or verifier is None:
            raise UsageError(
                "STO-U004",
                f"{launcher.name} or the verifier's archive beside it cannot be read",
                hint=f"put {VERIFIER_ARCHIVE} beside the launcher",
            )
        return cls(launcher, verifier)

    def ready(self, app: str) -> Program:
        """Return itself: it serves every app; see `ProgramSource`."""
        del app
        return self


class ProgramSource(Protocol):
    """Where the program of an app comes from."""

    def ready(self, app: str) -> Program:
        """Return the program of `app`, checked and ready to be started.

        Raises:
            TrustError: there is none that may be started.
            UnreachableError: it cannot be fetched now.
            InternalError: the disk refuses.
        """
        ...
