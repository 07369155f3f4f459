"""What a verified release says: epochs, levels, parts, floors, revocations, reviewers.

Each file is a small JSON target named by TUF metadata that the project's offline keys signed.
`trust` verifies them up to the root and puts them together here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import msgspec

from stoilo.audit.format.policy import LogPolicy
from stoilo.core.digests import Digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.levels import Level
from stoilo.core.libraries import MOST_LIBRARIES, Library, parse_library
from stoilo.core.signatures import PublicKey, parse_public_key, parse_strict_json
from stoilo.core.types import BOUNDS

if TYPE_CHECKING:  # loaded by `tuf_client`, in its own way
    from tuf.api.metadata import TargetFile

PART_FORMAT: Final = "stoilo-part/1"
MAX_EPOCHS = 16
MAX_LEVELS = 16
MAX_PARTS = 64
MAX_ARCHIVE_BYTES = 4 * 1024**3

_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
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
    """``project.json``: what the release holds."""

    # the project's name, equal to its log's origin
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    # name of each level → digests of its files that may be admitted, the newest first:
    # an older one lets tasks of an earlier release run to their end
    levels: Annotated[dict[_Name, _Accepted], msgspec.Meta(max_length=MAX_LEVELS)]
    # digests of the language layers that may be admitted, newest first
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
    """``revocation/denied.json``: what the offline role has withdrawn."""

    digests: tuple[_Digest, ...] = ()  # of anything
    epochs: tuple[_Count, ...] = ()  # gate epochs withdrawn before their end
    min_epoch: _Count = 1  # lowest gate epoch allowed
    flavors: tuple[_Digest, ...] = ()  # ids of withdrawn flavors
    # public keys (hex) that may add to this list online
    keys: Annotated[tuple[_Digest, ...], msgspec.Meta(max_length=8)] = ()
    # the highest sequence number of online statements that this list has settled: what
    # it did not take over from them is withdrawn no more
    settled: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0


class PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``policy/accepted.json``: the policies in force."""

    digests: tuple[_Digest, ...] = ()  # of the policies; empty: not listed
    # digest of a policy → levels whose tasks need a review under it
    reviewed: dict[_Digest, tuple[str, ...]] = {}


class ReviewerKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reviewer."""

    key: _Digest  # public key, hex
    name: Annotated[str, msgspec.Meta(max_length=128)] = ""  # for people
    # salted commitments of the accounts that this person submits from; their tasks are
    # never admitted by this person's own review
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
    """One part: ``launcher|verifier/<platform>.json``, ``flavor/<name>/<platform>.json``.

    Or ``policy/flavor-<name>.<platform>.json``: a flavor that the policy role names alone.
    """

    format: Literal["stoilo-part/1"]  # `PART_FORMAT`
    part: _Name  # ``launcher``, ``verifier`` or the flavor's name
    platform: _Platform  # for example ``x86_64-linux``
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]  # for people
    serial: _Serial  # rises with every release of this part; floors are set by it
    archive: ArchiveFile  # the file as shipped; a launcher's is the program itself
    tree: _DigestOrNone = ""  # digest of the tree manifest; empty for a launcher
    # minor version, for example ``3.11``; empty for a launcher
    python: Annotated[str, msgspec.Meta(pattern=r"\A([0-9]\.[0-9]{1,3})?\Z")] = ""
    # SHA-256 of the flavor's manifest; empty for launcher and verifier
    flavor: _DigestOrNone = ""
    # the thesis's MD5 id of that manifest; empty for launcher and verifier
    alias: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{32})?\Z")] = ""
    # the level a flavor is made for; empty for launcher and verifier
    level: Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9-]{0,32}\Z")] = ""
    sbom: _DigestOrNone = ""  # SHA-256 of the software bill of materials
    lock: _DigestOrNone = ""  # SHA-256 of the lock file that the part was built from
    # digests of the described libraries that a flavor holds, in the order of their names
    libraries: Annotated[
        tuple[_Digest, ...], msgspec.Meta(max_length=MOST_LIBRARIES)
    ] = ()
    role: Literal["targets", "policy"] = "targets"  # who names it, and its files

    @property
    def target(self) -> str:
        """The target name of its files, without suffix (``verifier/x86_64-linux``)."""
        return part_target(self.part, self.platform, self.role)


class FloorsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``executor/floors.json``: the oldest parts that may still work."""

    verifier: _Serial = 1  # lowest serial of a verifier that may do any work
    # other part → lowest serial that may run
    serials: Annotated[dict[_Name, _Serial], msgspec.Meta(max_length=MAX_PARTS)] = {}


class Floors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lowest versions that a host accepts; raised by releases, never by a server.

    A verifier is built with those of its day (``built.json``) and remembers the highest that
    a release has named.
    """

    root: _Size = 1  # TUF root version
    targets: _Size = 1  # TUF targets version
    epoch: _Size = 1  # gate epoch
    log_size: _Size = 0  # leaves that the log had when this verifier was released
    serials: dict[_Name, _Size] = {}  # part → lowest serial that may run
    revocation: _Size = 0  # version of the offline revocation role

    def serial(self, part: str) -> int:
        """Return the lowest serial of `part` that may still work."""
        return self.serials.get(part, 0)


LOWEST: Final = Floors()
"""Of a build that names none, and of a host that has seen no release."""


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


@dataclass(frozen=True, slots=True)
class GateEpoch:
    """One certified life of the gate's key; times in Unix seconds."""

    number: int
    keys: tuple[PublicKey, ...]
    threshold: int
    not_before: int
    not_after: int
    max_per_minute: int

    def holds(self, admitted_at: int, not_after: int) -> bool:
        """Whether an admission's life lies inside the window."""
        return self.not_before <= admitted_at <= not_after <= self.not_after


@dataclass(frozen=True, slots=True)
class Reviewer:
    """A reviewer as the verifier knows him; see `ReviewerKey`."""

    key: PublicKey
    name: str = ""
    accounts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TrustedRelease:
    """Everything the verifier believes, from the root down."""

    origin: str  # the project
    development: bool  # whether the root is marked as one of development
    root_version: int  # newest root seen
    targets_version: int  # version of the offline targets role
    timestamp_version: int  # version of the timestamp seen
    expires: int  # when the first piece of metadata expires, Unix seconds
    epochs: tuple[GateEpoch, ...]  # certified gate epochs, lowest number first
    log_policy: LogPolicy  # logs and witnesses to believe
    # the levels both certified and installed here; of one name the newest certified
    # comes first
    levels: tuple[Level, ...]
    languages: frozenset[str]  # the language layers both certified and run here
    installed_language: str  # the one that this executor has
    python: str  # the minor version that this executor runs
    # accepted policy digests; empty when the release lists none
    policies: frozenset[str]
    denied: frozenset[str]  # withdrawn digests of any kind
    revoked_epochs: frozenset[int]  # epochs withdrawn before their end
    min_epoch: int  # lowest epoch allowed
    reviewers: tuple[Reviewer, ...]  # those whose reviews count
    # policy digest → levels whose tasks need a review under it
    reviewed: Mapping[str, frozenset[str]]
    withdrawn_flavors: frozenset[str]  # ids of flavors that must not run any more
    revocation_version: int  # version of the offline revocation role
    revocation_digest: Digest  # SHA-256 of its file
    revocation_keys: tuple[PublicKey, ...]  # those who may add to it online
    revocations_settled: int  # sequence number up to which online additions are settled
    rehearsal: bool = False  # whether the root is marked as one of a rehearsal
    # launcher, verifier and flavors, by platform; none in a development release
    parts: tuple[PartFile, ...] = ()
    # the oldest parts that may still work
    floors: FloorsFile = field(default_factory=FloorsFile)
    builders: BuilderFile = field(default_factory=BuilderFile)  # who attests builds
    # digest of each accepted library's file → its bytes, parsed where a task needs it
    libraries: Mapping[str, bytes] = field(default_factory=dict)

    def epoch_at(self, now: int, lifetime_s: int) -> GateEpoch | None:
        """Return the newest epoch that holds an admission from `now` for `lifetime_s`."""
        usable = (
            epoch
            for epoch in self.epochs
            if epoch.holds(now, now + lifetime_s)
            and epoch.number >= self.min_epoch
            and epoch.number not in self.revoked_epochs
        )
        return max(usable, key=lambda epoch: epoch.number, default=None)

    def needs_review(self, policy_digest: str, level: str) -> bool:
        """Whether the signed policy wants a reviewer's signature at `level`."""
        return level in self.reviewed.get(policy_digest, frozenset())

    def level(self, name: str, digest: str = "") -> Level | None:
        """Return the held level called `name`, the newest unless `digest` names one."""
        named = [level for level in self.levels if level.name == name]
        exact = [level for level in named if level.digest == digest]
        return next(iter(exact or named), None)

    def library(self, digest: str) -> Library:
        """Return the accepted library of that digest; raises ``STO-A032`` without it."""
        data = self.libraries.get(digest)
        if data is None:
            raise TrustError("STO-A032", f"the release has no library {digest[:16]}…")
        try:
            return parse_library(data)
        except StoiloError as error:
            raise TrustError("STO-A032", f"{error.message} here") from error

    def part(self, name: str, platform: str) -> PartFile | None:
        """Return the record of part `name` for `platform`, None without one."""
        wanted = (name, platform)
        found = (one for one in self.parts if (one.part, one.platform) == wanted)
        return next(found, None)

    def flavor_part(self, flavor: str, platform: str) -> PartFile | None:
        """Return the record of the flavor whose manifest is `flavor` (SHA-256)."""
        wanted = (flavor, platform)
        found = (one for one in self.parts if (one.flavor, one.platform) == wanted)
        return next(found, None) if flavor else None


def read_epoch(data: bytes, number: int) -> GateEpoch:
    """Return gate epoch `number`; raises ``STO-K013``, ``STO-K001``."""
    name = f"gate/{number}.json"
    record = read_target(data, EpochFile, name)
    keys = tuple(parse_public_key(key) for key in record.keys)
    if record.epoch != number or len(set(keys)) != len(keys):
        raise TrustError("STO-K013", f"{name} is for another epoch or repeats a key")
    if record.threshold > len(keys) or record.not_before >= record.not_after:
        raise TrustError("STO-K013", f"{name} has an impossible threshold or window")
    return GateEpoch(
        number=number,
        keys=keys,
        threshold=record.threshold,
        not_before=record.not_before,
        not_after=record.not_after,
        max_per_minute=record.max_per_minute,
    )


PART_RECORD: Final = re.compile(
    r"(?:(launcher|verifier|flavor/[a-z0-9-]{1,32})/|policy/flavor-([a-z0-9-]{1,32})\.)"
    r"([a-z0-9_-]+)\.json"
)
"""Names of the targets that are parts' records."""

_SUFFIXES: Final = {"launcher": "", "verifier": ".tar"}


def part_target(part: str, platform: str, role: str = "targets") -> str:
    """Return the target name of part `part`, without suffix (``verifier/x86_64-linux``)."""
    if role == "policy":
        return f"policy/flavor-{part}.{platform}"
    folder = part if part in _SUFFIXES else f"flavor/{part}"
    return f"{folder}/{platform}"


def read_epochs(files: Mapping[str, bytes]) -> tuple[GateEpoch, ...]:
    """Return the certified gate epochs, lowest number first.

    Raises:
        TrustError: STO-K013 malformed, missing, STO-K001 bad keys.
    """
    name = "gate/epochs.json"
    listed = read_target(find(files, name), EpochsFile, name)
    return tuple(
        read_epoch(find(files, f"gate/{number}.json"), number)
        for number in sorted(set(listed.epochs))
    )


def read_parts(
    files: Mapping[str, bytes], infos: Mapping[str, TargetFile]
) -> tuple[PartFile, ...]:
    """Return the records of the release's parts, in the order of their names.

    Args:
        files: verified targets that travel, by name.
        infos: size and digest of every target, by name.

    Raises:
        TrustError: STO-K013 malformed; a record and the files it is about
            disagree; the policy role names a program, or a flavor of the targets role.
    """
    found = []
    for name in sorted(files):
        match = PART_RECORD.fullmatch(name)
        if match is not None:
            part = read_target(files[name], PartFile, name)
            role = "targets" if match[2] is None else "policy"
            own = match[2] or match[1].removeprefix("flavor/")
            if (part.part, part.platform, part.role) != (own, match[3], role):
                raise _disagrees(name)
            _check_files(part, infos)
            found.append(part)
    _check_owners(found)
    return tuple(found)


def _check_owners(parts: list[PartFile]) -> None:
    """Refuse what only the targets role may say: its names and flavors, and programs.

    Whoever holds the policy role's keys alone replaces nothing that others signed.
    """
    owned = {
        word
        for part in parts
        if part.role == "targets"
        for word in (part.part, part.flavor, part.alias or part.flavor)
    } | {"", *_SUFFIXES}
    for part in parts:
        said = {part.part, part.flavor, part.alias or part.flavor}
        if part.role == "policy" and owned & said:
            raise TrustError(
                "STO-K013", f"the policy role may not name {part.part}, or its flavor"
            )


def _check_files(part: PartFile, infos: Mapping[str, TargetFile]) -> None:
    name, target = part.part, part.target
    archive = target + _SUFFIXES.get(name, ".tar.xz")
    beside = [(archive, part.archive.sha256)]
    if name != "launcher":
        beside += [(f"{target}.tree", part.tree)]
    beside += [(f"{target}.sbom.json", part.sbom)] if part.sbom else []
    agrees = all(
        path in infos and infos[path].hashes.get("sha256") == digest
        for path, digest in beside
    )
    if not agrees or infos[archive].length != part.archive.size:
        raise _disagrees(f"{target}.json")


def _disagrees(name: str) -> TrustError:
    return TrustError("STO-K013", f"{name} and the files it is about disagree")


def find(files: Mapping[str, bytes], name: str) -> bytes:
    """Return target `name`, or raise ``STO-K013``."""
    data = files.get(name)
    if data is None:
        raise TrustError("STO-K013", f"the release does not name {name}")
    return data
