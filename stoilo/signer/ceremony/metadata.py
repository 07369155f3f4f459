"""One file of TUF metadata: read strictly, compared by what was signed.

python-tuf takes what another implementation might write and does not look at the types
inside; a ceremony takes what we write and nothing else, so that a malformed field is said
to be one instead of failing somewhere behind it.
Source: TUF specification 1.0.34 §4.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Key, Metadata, Root, TargetFile, Targets

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import parse_strict_json
from stoilo.signer.roles import ceremony_bounds

_Hex = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]

_Signature = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{128}\Z")]

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]

_Size = Annotated[int, msgspec.Meta(ge=0, le=2**40)]

_Time = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z"
    ),
]

_Version = Annotated[str, msgspec.Meta(pattern=r"\A1\.[0-9]{1,3}\.[0-9]{1,3}\Z")]

_Target = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){0,3}\Z"
    ),
]

_RoleName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z]{1,32}\Z")]

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
        if self.role == "timestamp":
            return "timestamp.json"
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
    # Copies signed in any order come to the same bytes.
    metadata.signatures = dict(sorted(metadata.signatures.items()))
    return RoleFile(role, metadata.signed.version, metadata.to_bytes())


def open_root(file: RoleFile) -> Metadata[Root]:
    """Return root metadata; raises ``STO-K050``."""
    return open_role(file)


def open_targets(file: RoleFile) -> Metadata[Targets]:
    """Return metadata of targets or of a delegated role; raises ``STO-K050``."""
    return open_role(file)


def open_role(file: RoleFile) -> Metadata[Any]:
    """Parse a metadata file (hostile), which must be what its role and name say.

    Raises ``STO-K050``.
    """
    # python-tuf does not look at types: what is malformed would fail far from here.
    _check_shape(file)
    try:
        metadata = Metadata[Any].from_bytes(file.data)
    except (RepositoryError, ValueError) as error:
        raise TrustError("STO-K050", f"{file.name} cannot be read") from error
    if file.version and metadata.signed.version != file.version:
        raise TrustError("STO-K050", f"{file.name} says another version inside")
    return metadata


@functools.lru_cache(maxsize=64)
def targets_of(file: RoleFile) -> Mapping[str, TargetFile]:
    """Return what a targets file names, read once: only ever looked at; raises ``STO-K050``."""
    return MappingProxyType(open_targets(file).signed.targets)


def signers_of(file: RoleFile, *owners: Root | Targets) -> dict[str, Key]:
    """Return the keys that signed `file`, by id, once each owner's threshold is met.

    Raises ``STO-K012`` when it is not; ``STO-K050``.
    """
    metadata = open_role(file)
    signers: dict[str, Key] = {}
    for owner in owners:
        try:
            result = owner.get_verification_result(
                file.role, metadata.signed_bytes, metadata.signatures
            )
        except (RepositoryError, ValueError) as error:
            raise TrustError("STO-K012", f"nobody may sign {file.name}") from error
        if not result.verified:
            raise TrustError(
                "STO-K012",
                f"{file.name} is signed by {len(result.signed)} of the "
                f"{result.threshold} keys that it needs",
            )
        signers |= result.signed
    return signers


def signatures_of(file: RoleFile) -> frozenset[str]:
    """Return the ids of the keys that are said to have signed `file`; unverified."""
    return frozenset(open_role(file).signatures)


@functools.lru_cache(maxsize=64)
def _signed_digest(file: RoleFile) -> Digest:
    return content_digest(open_role(file).signed_bytes)


def _check_shape(file: RoleFile) -> None:
    """Refuse metadata that is not written as we write it; raises ``STO-K050``."""
    name, bound = file.name, ceremony_bounds().metadata_bytes
    try:
        document = parse_strict_json(file.data, max_bytes=bound, what=name)
        head = msgspec.convert(document, type=_Head)
        msgspec.convert(head.signed, type=_KINDS.get(file.role, _Targets))
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-K050", f"{name} is malformed: {error}") from error
    ids = [one.keyid for one in head.signatures]
    # The library keeps the last one; a threshold must not depend on which.
    if len(set(ids)) != len(ids):
        raise TrustError("STO-K050", f"{name} has two signatures of one key")


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No field that is not here."""


class _KeyValue(_Strict, frozen=True):
    public: _Hex


class _Key(_Strict, frozen=True, rename={"name": "x-stoilo-name"}):
    keytype: Literal["ed25519"]
    scheme: Literal["ed25519"]
    keyval: _KeyValue
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "-"


class _Keys(_Strict, frozen=True):
    keyids: Annotated[tuple[_Hex, ...], msgspec.Meta(max_length=64)]
    threshold: _Count


class _Delegated(_Keys, frozen=True):
    name: _RoleName
    terminating: bool
    paths: tuple[str, ...]


class _Delegations(_Strict, frozen=True):
    keys: dict[_Hex, _Key]
    roles: Annotated[tuple[_Delegated, ...], msgspec.Meta(max_length=16)]


class _Hashes(_Strict, frozen=True):
    sha256: _Hex


class _Info(_Strict, frozen=True):
    length: _Size
    hashes: _Hashes


class _Meta(_Strict, frozen=True):
    version: _Count
    length: _Size = 0
    hashes: _Hashes | None = None


class _Signed(msgspec.Struct, frozen=True, kw_only=True, rename={"type": "_type"}):
    """Fields of every role; a root may have marks beside them."""

    expires: _Time
    spec_version: _Version
    version: _Count


class _Root(_Signed, frozen=True, kw_only=True):
    type: Literal["root"]
    consistent_snapshot: bool
    keys: dict[_Hex, _Key]
    roles: dict[_RoleName, _Keys]


class _Targets(_Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["targets"]
    targets: dict[_Target, _Info]
    delegations: _Delegations | None = None


class _Snapshot(_Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["snapshot"]
    meta: dict[str, _Meta]


class _Timestamp(_Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Literal["timestamp"]
    meta: dict[str, _Meta]


class _OneSignature(_Strict, frozen=True):
    keyid: _Hex
    sig: _Signature


class _Head(_Strict, frozen=True):
    signatures: Annotated[tuple[_OneSignature, ...], msgspec.Meta(max_length=64)]
    signed: dict[str, object]


_KINDS = {"root": _Root, "snapshot": _Snapshot, "timestamp": _Timestamp}
