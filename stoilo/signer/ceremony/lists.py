"""A release's lists: records that it has once, each kind under its own name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.targets import (
    BuilderFile,
    EpochFile,
    EpochsFile,
    FloorsFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    read_target,
)
from stoilo.executor.verifier.trust import (
    BUILDERS_FILE,
    EPOCHS_FILE,
    FLOORS_FILE,
    POLICIES_FILE,
    PROJECT_FILE,
    REVIEWERS_FILE,
    REVOCATION_FILE,
)
from stoilo.signer.ceremony.proposal import NewTarget

LISTS: Final[Mapping[type[msgspec.Struct], str]] = MappingProxyType(
    {
        ProjectFile: PROJECT_FILE,
        FloorsFile: FLOORS_FILE,
        BuilderFile: BUILDERS_FILE,
        EpochsFile: EPOCHS_FILE,
        PolicyFile: POLICIES_FILE,
        RevocationFile: REVOCATION_FILE,
        ReviewerFile: REVIEWERS_FILE,
    }
)

Targets = Callable[[str], bytes | None]
"""Returns a small target's bytes by name, None where the release does not name it."""

_ListT = TypeVar("_ListT", bound=msgspec.Struct)


def read_list(targets: Targets, kind: type[_ListT]) -> _ListT:
    """Return a release's list of one kind, an empty one where it has none.

    Raises ``STO-K052`` without ``project.json``, which no release lacks; ``STO-K013``.
    """
    name = LISTS[kind]
    data = targets(name)
    if data is None and kind is ProjectFile:
        raise TrustError("STO-K052", f"the release has no {name}")
    return read_target(b"{}" if data is None else data, kind, name)


def read_epoch_files(targets: Targets) -> tuple[EpochFile, ...]:
    """Return the gate epochs that a release certifies, by number; raises ``STO-K013``."""
    return tuple(
        read_target(targets(name) or b"", EpochFile, name)
        for name in (
            f"gate/{number}.json"
            for number in sorted(read_list(targets, EpochsFile).epochs)
        )
    )


def list_target(record: msgspec.Struct) -> NewTarget:
    """Return a list as the target that holds it."""
    return NewTarget.of(LISTS[type(record)], msgspec.json.encode(record))
