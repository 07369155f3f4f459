"""What the rules may demand; each is one durable step (`steps.apply_action`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoilo.server.engines.interface import OutcomeKind

__all__ = [
    "Action",
    "Check",
    "Close",
    "Compare",
    "Create",
    "Drop",
    "Expire",
    "Finish",
    "Judge",
    "ReleaseClass",
    "SecondOpinion",
]


@dataclass(frozen=True, slots=True)
class Expire:
    """The copy's deadline has passed: over, no reply."""

    copy: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The copy is not needed any more: over; a host that has it is told to abort."""

    copy: str


@dataclass(frozen=True, slots=True)
class Create:
    """Make that many new unsent copies."""

    count: int


@dataclass(frozen=True, slots=True)
class ReleaseClass:
    """Nothing came of the class of host that had the copies: any class may have one."""


@dataclass(frozen=True, slots=True)
class Check:
    """Ask `Validation.check` about the copy's result."""

    copy: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Look for a quorum among these copies (`quorum.judge`)."""

    copies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare the copy with the canonical one: it came after the end."""

    copy: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the workunit its one final outcome."""

    kind: OutcomeKind


@dataclass(frozen=True, slots=True)
class Close:
    """No result can come any more: the files of an ended workunit may go."""


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """A re-check differed: let somebody else compute it once more before a verdict."""


Action = (
    Expire
    | Drop
    | Create
    | ReleaseClass
    | Check
    | Judge
    | Compare
    | Finish
    | Close
    | SecondOpinion
)
