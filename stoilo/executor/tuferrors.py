"""Which attack a refusal of python-tuf's client is, and our code for it.

The client knows a dozen kinds of error; what they mean depends on the step they came up in.
One code per attack: an operator who reads it knows what somebody tries.
Source: TUF specification 1.0.34 §1.5.2 (attacks), §5.3 to §5.7 (workflow).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tuf.api import exceptions

from stoilo.core.errors import TrustError

if TYPE_CHECKING:
    from tuf.ngclient._internal.trusted_metadata_set import TrustedMetadataSet

__all__ = ["ROLLBACK_CODES", "Phase", "Setback", "named_refusal"]

Phase = Literal["root", "timestamp", "snapshot", "targets", "file"]
"""Step of the client's workflow; the delegated roles are ``targets`` too."""

ROLLBACK_CODES: Final = frozenset(
    {"STO-K010", "STO-K016", "STO-K017", "STO-K018", "STO-K044"}
)
"""The release is older than one seen here: honest for a task of yesterday, whose own
metadata is then judged by the newer release that is known; else an attack."""

_EXPIRED: Final = {
    "root": "STO-K033",
    "timestamp": "STO-K011",
    "snapshot": "STO-K034",
    "targets": "STO-K035",
}


@dataclass(frozen=True, slots=True)
class Setback:
    """An error of python-tuf's client, and where it came up.

    Attributes:
        phase: the step.
        name: role or file that was being loaded.
        error: the client's.
        known: what it had accepted by then.
        highest_root: the highest version of a root that the release has.
    """

    phase: Phase
    name: str
    error: Exception
    known: TrustedMetadataSet
    highest_root: int


def named_refusal(setback: Setback) -> TrustError:
    """Return our refusal, with the code of the attack that it looks like."""
    for kind, name in _NAMED:
        if isinstance(setback.error, kind):
            return name(setback)
    return _malformed(setback)


def _expired(setback: Setback) -> TrustError:
    """Return the refusal of metadata past its end."""
    role = _expired_role(setback.known) or setback.name
    return TrustError(_EXPIRED.get(role, "STO-K036"), f"{role} has expired")


def _expired_role(known: TrustedMetadataSet) -> str:
    """Return the first top-level role that has expired, empty for none."""
    for name in ("root", "timestamp", "snapshot"):
        role = known.get(name)
        if role is not None and role.is_expired(known.reference_time):
            return name
    return ""


def _missing(setback: Setback) -> TrustError:
    """Return the refusal of a release that lacks a file."""
    return TrustError("STO-K014", f"{setback.name}: {setback.error}")


def _too_long(setback: Setback) -> TrustError:
    """Return the refusal of endless data."""
    return TrustError("STO-K037", f"{setback.name} is longer than it may be")


def _exchanged(setback: Setback) -> TrustError:
    """Return the refusal of a file whose digest or length is another's."""
    code = "STO-K038" if setback.phase == "file" else "STO-K019"
    return TrustError(code, f"{setback.name} is not the file that the metadata names")


def _unsigned(setback: Setback) -> TrustError:
    """Return the refusal of too few signatures."""
    known, highest = setback.known.root.version, setback.highest_root
    if setback.phase == "root":
        return TrustError(
            "STO-K031", f"a new root is not of the old one's line: {setback.error}"
        )
    if 0 < highest < known:
        return TrustError(
            "STO-K044", f"the release is of root {highest}, {known} is known here"
        )
    return TrustError("STO-K012", f"too few signatures: {setback.error}")


def _bad_version(setback: Setback) -> TrustError:
    """Return the refusal of a version: too low, or not the one that was named."""
    text = str(setback.error)
    if setback.phase == "root":
        return TrustError("STO-K032", f"a root's version does not follow: {text}")
    if setback.phase == "timestamp":
        code = "STO-K016" if text.startswith("New snapshot") else "STO-K010"
        return TrustError(code, f"a version went back: {text}")
    rolled = setback.phase == "snapshot" and not text.startswith("Expected snapshot")
    return TrustError("STO-K017" if rolled else "STO-K019", f"{setback.name}: {text}")


def _malformed(setback: Setback) -> TrustError:
    """Return the refusal of what is no metadata, or lacks a role."""
    text = str(setback.error)
    if any(words in text for words in _VANISHED):
        return TrustError("STO-K018", f"a role has vanished: {text}")
    return TrustError("STO-K013", f"{setback.name} cannot be read: {text}")


_VANISHED: Final = (
    "missing info",
    "not contain information",
    "not part of snapshot",
)
_NAMED: Final[tuple[tuple[type[Exception], Callable[[Setback], TrustError]], ...]] = (
    (exceptions.ExpiredMetadataError, _expired),
    (exceptions.BadVersionNumberError, _bad_version),
    (exceptions.UnsignedMetadataError, _unsigned),
    (exceptions.LengthOrHashMismatchError, _exchanged),
    (exceptions.DownloadLengthMismatchError, _too_long),
    (exceptions.DownloadError, _missing),
)
