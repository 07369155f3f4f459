"""What lies outside the jail for a program to reach: a canary to read, a mark to make."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["NOW", "REACHED", "Ground"]

REACHED = "REACHED"
"""What a program says that reached something inside its own process."""


NOW = 1_700_000_000
"""What the clock says in every run, s since 1970."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A temporary folder that any uid may use, so that no permission stands in for us.

    Attributes:
        folder: the folder, deleted at the end of the ``with``.
        token: random text inside the canary.
    """

    folder: Path
    token: str

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    """Return a temporary directory that a jailed uid could reach, or the usual one."""
    usual = Path(tempfile.gettempdir()).resolve()
    for place in (usual, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - checked below
        if all(part.stat().st_mode & 0o001 for part in (place, *place.parents)):
            return place
    return usual
