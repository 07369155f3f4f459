"""Version floors that this host has learned: they rise with every release, and never fall.

A release says which verifiers and flavors are too old for any work. Once this host has
verified that, an older release, however fresh its timestamp, cannot take it back. The file
lies in the volunteer's own home, outside what a project writes (I4).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from stoilo.core.errors import InternalError
from stoilo.executor.bundle import Floors
from stoilo.executor.ledger import replace_file
from stoilo.executor.release import TrustedRelease

__all__ = ["FLOORS_FILE", "FloorMemory", "raise_floors"]

FLOORS_FILE = "floors.json"
MAX_BYTES = 64 * 1024
MOST_SERIALS = 256

MOST = 2**53
"""Highest version that is remembered: one key may raise the revocation role's at will."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is on the disk."""

    format: Literal["stoilo-floors/1"]
    root: _Count
    targets: _Count
    epoch: _Count
    log_size: _Count
    verifier: _Count
    serials: Annotated[dict[str, _Count], msgspec.Meta(max_length=MOST_SERIALS)]
    revocation: _Count = 0


def raise_floors(one: Floors, other: Floors) -> Floors:
    """Return the higher of each floor."""
    return Floors(
        root=max(one.root, other.root),
        targets=max(one.targets, other.targets),
        epoch=max(one.epoch, other.epoch),
        log_size=max(one.log_size, other.log_size),
        verifier=max(one.verifier, other.verifier),
        serials=_highest(one.serials, other.serials),
        revocation=max(one.revocation, other.revocation),
    )


class FloorMemory:
    """The floors in `path`, never below those compiled in; any thread of one process.

    Raises:
        InternalError: STO-F040 the file is damaged: without it the host could be led back
            to what a release has withdrawn.
    """

    def __init__(self, path: Path, compiled: Floors) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._floors = raise_floors(compiled, self._load())

    @property
    def floors(self) -> Floors:
        """The floors in force."""
        return self._floors

    def learn(self, trust: TrustedRelease) -> Floors:
        """Raise the floors to what a *verified* release says, durably; returns them.

        Raises:
            InternalError: STO-F040, STO-X008 the disk refuses.
        """
        said = Floors(
            root=trust.root_version,
            targets=trust.targets_version,
            epoch=trust.min_epoch,
            verifier=trust.floors.verifier,
            serials=trust.floors.serials,
            revocation=min(trust.revocation_version, MOST),
        )
        with self._lock:
            raised = raise_floors(raise_floors(self._floors, self._load()), said)
            if raised != self._floors:
                replace_file(self._path, _render(raised))
                self._floors = raised
            return raised

    def _load(self) -> Floors:
        """Return what the disk holds; the lowest floors when it holds nothing."""
        try:
            with self._path.open("rb") as file:
                row = msgspec.json.decode(file.read(MAX_BYTES + 1), type=_File)
        except FileNotFoundError:
            return Floors()
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            raise InternalError(
                "STO-F040",
                "this host's memory of version floors cannot be read",
                hint=f"look at {self._path.name} in the state directory of the project",
            ) from error
        return Floors(
            root=row.root,
            targets=row.targets,
            epoch=row.epoch,
            log_size=row.log_size,
            verifier=row.verifier,
            serials=row.serials,
            revocation=row.revocation,
        )


def _render(floors: Floors) -> bytes:
    """Return the file's bytes."""
    return msgspec.json.encode(
        _File(
            format="stoilo-floors/1",
            root=floors.root,
            targets=floors.targets,
            epoch=floors.epoch,
            log_size=floors.log_size,
            verifier=floors.verifier,
            serials=dict(floors.serials),
            revocation=floors.revocation,
        ),
        order="sorted",
    )


def _highest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the higher floor of each part."""
    return {part: max(one.get(part, 0), other.get(part, 0)) for part in {*one, *other}}
