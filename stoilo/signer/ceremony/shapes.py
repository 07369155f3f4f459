"""What metadata files look like, field by field: checked before python-tuf reads them.

The library takes what another implementation might write, and types inside are not its
business; a ceremony takes what we write and nothing else, so that a malformed field is
said to be one instead of failing somewhere behind it.
Source: TUF specification 1.0.34 §4.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.strict_json import parse_strict_json

__all__ = ["check_shape"]

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


_KINDS = {
    "root": _Root,
    "snapshot": _Snapshot,
    "timestamp": _Timestamp,
}


def check_shape(data: bytes, role: str, name: str, max_bytes: int) -> None:
    """Refuse metadata that is not written as we write it.

    Args:
        data: a file, hostile.
        role: whose it must be.
        name: the file's, for messages.
        max_bytes: bound, checked first.

    Raises:
        TrustError: ``STO-K050``, also for what is no strict JSON.
    """
    try:
        document = parse_strict_json(data, max_bytes=max_bytes, what=name)
        head = msgspec.convert(document, type=_Head)
        msgspec.convert(head.signed, type=_KINDS.get(role, _Targets))
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-K050", f"{name} is malformed: {error}") from error
    ids = [one.keyid for one in head.signatures]
    if len(set(ids)) != len(ids):
        raise TrustError("STO-K050", f"{name} has two signatures of one key")
