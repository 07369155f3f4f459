"""The steps of an installation, as values: a dry run shows them, `applying` does them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoilo.server.engines.stock.installation.versions import VersionFolder

__all__ = [
    "AddVersion",
    "MarkPreferences",
    "Note",
    "Plan",
    "RetireVersions",
    "RunTool",
    "SetMode",
    "Step",
    "WriteFile",
]


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file gets its content, in one step by a rename.

    Attributes:
        path: from the project.
        content: of the file.
        mode: its permissions.
        why: what it is for, or what goes wrong without.
        keep_former: a copy of what was there stays beside it.
    """

    path: str
    content: bytes
    mode: int
    why: str
    keep_former: bool = False

    def __str__(self) -> str:
        """Return the step for people."""
        return f"write {self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class SetMode:
    """A file or directory gets its permissions; a directory is made, with what it holds."""

    path: str
    mode: int
    why: str

    def __str__(self) -> str:
        """Return the step for people."""
        return f"set {self.path} to {self.mode:o}: {self.why}"


@dataclass(frozen=True, slots=True)
class AddVersion:
    """An app version's directory with programs and signatures."""

    folder: VersionFolder

    def __str__(self) -> str:
        """Return the step for people."""
        return f"add {self.folder.path}"


@dataclass(frozen=True, slots=True)
class RunTool:
    """One of BOINC's own programs runs in the project's directory."""

    words: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        """Return the step for people."""
        return f"run {' '.join(self.words)}: {self.why}"


@dataclass(frozen=True, slots=True)
class RetireVersions:
    """App versions in the database are not sent any more: rows of `app_version`."""

    rows: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        """Return the step for people."""
        return f"retire app versions {', '.join(map(str, self.rows))}: {self.why}"


@dataclass(frozen=True, slots=True)
class MarkPreferences:
    """Accounts' preferences get the element that the scheduler looks at."""

    accounts: int

    def __str__(self) -> str:
        """Return the step for people."""
        return (
            f"mark the preferences of {self.accounts} accounts: the scheduler looks at"
            " one element, which they were saved without"
        )


Step = WriteFile | SetMode | AddVersion | RunTool | RetireVersions | MarkPreferences


@dataclass(frozen=True, slots=True)
class Note:
    """What people have to do.

    Attributes:
        name: of the hazard, one word.
        text: what is wrong and what to do.
        grave: the project cannot be used, or not safely, until it is done.
    """

    name: str
    text: str
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation has to do, in order; empty where everything is done."""

    steps: tuple[Step, ...]
    notes: tuple[Note, ...] = ()
