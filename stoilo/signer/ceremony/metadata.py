"""One file of TUF metadata: read strictly, compared by what was signed."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, TargetFile, Targets, Timestamp

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.signer.ceremony.shapes import check_shape
from stoilo.signer.roles import ceremony_bounds

__all__ = [
    "RoleFile",
    "open_metadata",
    "open_root",
    "open_targets",
    "parse_role_name",
    "role_file",
    "signatures_of",
    "targets_of",
]

_S = TypeVar("_S", Root, Timestamp, Snapshot, Targets)
_VERSIONED: Final = re.compile(r"([1-9][0-9]{0,8})\.([a-z]{1,32})\.json")


@dataclass(frozen=True, slots=True)
class RoleFile:
    """A metadata file as bytes: ``<version>.<role>.json``."""

    role: str
    version: int
    data: bytes

    @property
    def name(self) -> str:
        """The file's name below ``metadata/``."""
        return f"{self.version}.{self.role}.json"

    @property
    def signed_digest(self) -> Digest:
        """SHA-256 of what signatures are made over: the same however many there are."""
        return _signed_digest(self)


def parse_role_name(name: str) -> tuple[int, str] | None:
    """Return version and role of a file name, or None when it is another kind of file."""
    found = _VERSIONED.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def role_file(role: str, metadata: Metadata[Any]) -> RoleFile:
    """Return `metadata` as a file, its signatures in the order of their keys."""
    metadata.signatures = dict(sorted(metadata.signatures.items()))
    return RoleFile(role, metadata.signed.version, metadata.to_bytes())


def open_root(file: RoleFile) -> Metadata[Root]:
    """Return root metadata; raises ``STO-K050``."""
    return open_metadata(file, Root)


def open_targets(file: RoleFile) -> Metadata[Targets]:
    """Return metadata of targets or of a delegated role; raises ``STO-K050``."""
    return open_metadata(file, Targets)


@functools.lru_cache(maxsize=64)
def targets_of(file: RoleFile) -> Mapping[str, TargetFile]:
    """Return what a targets file names, read once: only ever looked at.

    Raises:
        TrustError: ``STO-K050``.
    """
    return MappingProxyType(open_targets(file).signed.targets)


def open_metadata(file: RoleFile, kind: type[_S]) -> Metadata[_S]:
    """Parse a metadata file (hostile), which must be what its name says.

    Raises:
        TrustError: ``STO-K050``.
    """
    check_shape(file.data, file.role, file.name, ceremony_bounds().metadata_bytes)
    try:
        metadata = Metadata[_S].from_bytes(file.data)
    except (RepositoryError, ValueError) as error:
        raise TrustError("STO-K050", f"{file.name} cannot be read") from error
    if not isinstance(metadata.signed, kind):
        raise TrustError("STO-K050", f"{file.name} is metadata of another role")
    if file.version and metadata.signed.version != file.version:
        raise TrustError("STO-K050", f"{file.name} says another version inside")
    return metadata


def signatures_of(file: RoleFile) -> frozenset[str]:
    """Return the ids of the keys that are said to have signed `file`; unverified."""
    return frozenset(_open(file).signatures)


def _open(file: RoleFile) -> Metadata[Any]:
    match file.role:
        case "root":
            return open_metadata(file, Root)
        case "snapshot":
            return open_metadata(file, Snapshot)
        case "timestamp":
            return open_metadata(file, Timestamp)
    return open_metadata(file, Targets)


@functools.lru_cache(maxsize=64)
def _signed_digest(file: RoleFile) -> Digest:
    return content_digest(_open(file).signed_bytes)
