"""The files that a release's targets are: epochs, revocations, policies, parts, floors.

Each is a small JSON file named by TUF metadata that the project's offline keys signed (or
a role that they delegated). The bytes have been verified when they come here; they are
read strictly all the same, because a typing error in a ceremony must not widen anything.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.strict_json import parse_strict_json

__all__ = [
    "PART_FORMAT",
    "ArchiveFile",
    "BuilderFile",
    "BuilderKey",
    "EpochFile",
    "EpochsFile",
    "FloorsFile",
    "PartFile",
    "PolicyFile",
    "ProjectFile",
    "ReviewerFile",
    "ReviewerKey",
    "RevocationFile",
    "read_target",
]

PART_FORMAT: Final = "stoilo-part/1"
MAX_EPOCHS = 16
MAX_LEVELS = 16
MAX_PARTS = 64
MAX_ARCHIVE_BYTES = 4 * 1024**3

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Time = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
_Serial = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9-]{1,32}\Z")]
_Platform = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9_]{1,16}-[a-z]{1,16}\Z")]
_DigestOrNone = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")]
_Accepted = Annotated[tuple[_Digest, ...], msgspec.Meta(max_length=32)]
_FileName = Annotated[
    str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
]


class ProjectFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``project.json``: what the release holds.

    Attributes:
        origin: the project's name, equal to its log's origin.
        levels: name of each level → digests of its files that may be admitted, the
            newest first: an older one lets tasks of an earlier release run to their end.
        languages: digests of the language layers that may be admitted, newest first.
    """

    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    levels: Annotated[dict[_Name, _Accepted], msgspec.Meta(max_length=MAX_LEVELS)]
    languages: _Accepted


class EpochsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``gate/epochs.json``, of the delegated role ``gate``: the certified epochs."""

    epochs: Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_EPOCHS)] = ()


class EpochFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``gate/<epoch>.json``: keys (hex), their window (Unix seconds) and rate."""

    epoch: _Count
    keys: Annotated[tuple[_Digest, ...], msgspec.Meta(min_length=1, max_length=8)]
    threshold: _Count
    not_before: _Time
    not_after: _Time
    max_per_minute: _Count


class RevocationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``revocation/denied.json``: what the offline role has withdrawn.

    Attributes:
        digests: of anything.
        epochs: gate epochs withdrawn before their end.
        min_epoch: lowest gate epoch allowed.
        flavors: ids of withdrawn flavors.
        keys: public keys (hex) that may add to this list online.
        settled: the highest sequence number of online statements that this list has
            settled: what it did not take over from them is withdrawn no more.
    """

    digests: tuple[_Digest, ...] = ()
    epochs: tuple[_Count, ...] = ()
    min_epoch: _Count = 1
    flavors: tuple[_Digest, ...] = ()
    keys: Annotated[tuple[_Digest, ...], msgspec.Meta(max_length=8)] = ()
    settled: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0


class PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``policy/accepted.json``: the policies in force.

    Attributes:
        digests: of the policies; empty: not listed.
        reviewed: digest of a policy → levels whose tasks need a review under it.
    """

    digests: tuple[_Digest, ...] = ()
    reviewed: dict[_Digest, tuple[str, ...]] = {}


class ReviewerKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reviewer.

    Attributes:
        key: public key, hex.
        name: for people.
        accounts: salted commitments of the accounts that this person submits from; their
            tasks are never admitted by this person's own review.
    """

    key: _Digest
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""
    accounts: Annotated[tuple[_Digest, ...], msgspec.Meta(max_length=64)] = ()


class ReviewerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``reviewers/keys.json``: those whose reviews count."""

    keys: Annotated[tuple[ReviewerKey, ...], msgspec.Meta(max_length=256)] = ()


class ArchiveFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a part, as shipped: base name, size in bytes, SHA-256."""

    name: _FileName
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_ARCHIVE_BYTES)]
    sha256: _Digest


class PartFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``launcher|verifier/<platform>.json``, ``flavor/<name>/<platform>.json``: one part.

    Attributes:
        format: `PART_FORMAT`.
        part: ``launcher``, ``verifier`` or the flavor's name.
        platform: for example ``x86_64-linux``.
        version: for people.
        serial: rises with every release of this part; floors are set by it.
        archive: the file as shipped; a launcher's is the program itself.
        tree: digest of the tree manifest; empty for a launcher.
        python: minor version, for example ``3.11``; empty for a launcher.
        flavor: SHA-256 of the flavor's manifest; empty for launcher and verifier.
        alias: the thesis's MD5 id of that manifest; empty for launcher and verifier.
        level: the level a flavor is made for; empty for launcher and verifier.
        sbom: SHA-256 of the software bill of materials.
        lock: SHA-256 of the lock file that the part was built from.
    """

    format: Literal["stoilo-part/1"]
    part: _Name
    platform: _Platform
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    serial: _Serial
    archive: ArchiveFile
    tree: _DigestOrNone = ""
    python: Annotated[str, msgspec.Meta(pattern=r"\A([0-9]\.[0-9]{1,3})?\Z")] = ""
    flavor: _DigestOrNone = ""
    alias: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{32})?\Z")] = ""
    level: Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9-]{0,32}\Z")] = ""
    sbom: _DigestOrNone = ""
    lock: _DigestOrNone = ""


class FloorsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``executor/floors.json``: the oldest parts that may still work.

    Attributes:
        verifier: lowest serial of a verifier that may do any work.
        serials: other part → lowest serial that may run.
    """

    verifier: _Serial = 1
    serials: Annotated[dict[_Name, _Serial], msgspec.Meta(max_length=MAX_PARTS)] = {}


class BuilderKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One builder: public key (hex), and a name for people."""

    key: _Digest
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""


class BuilderFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``builders/keys.json``: who attests builds, and how many must agree."""

    keys: Annotated[tuple[BuilderKey, ...], msgspec.Meta(max_length=32)] = ()
    threshold: Annotated[int, msgspec.Meta(ge=0, le=32)] = 0


_File = TypeVar("_File", bound=msgspec.Struct)


def read_target(data: bytes, kind: type[_File], name: str) -> _File:
    """Return target `name`, of verified bytes, as a record; raises ``STO-K013``."""
    document = parse_strict_json(data, max_bytes=BOUNDS.metadata_bytes, what=name)
    try:
        return msgspec.convert(document, type=kind)
    except msgspec.ValidationError as error:
        raise TrustError("STO-K013", f"{name} is malformed: {error}") from error
