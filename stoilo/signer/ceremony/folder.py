"""A ceremony's folder, as it travels on a stick: public files under fixed names.

    FOLDER/ceremony.json                 what this is about
    FOLDER/current/…                     the published release it builds on
    FOLDER/proposed/metadata/<version>.<role>.json
    FOLDER/proposed/targets/…            new files by consistent-snapshot name
    FOLDER/builds/<part>/<platform>/…    builders' attestations
    FOLDER/boinc/…                       BOINC's signatures and key
    FOLDER/requests/online.json          public keys made on the server
    FOLDER/transcript.jsonl              who did what

Trust: everything is hostile. Names, sizes and kinds of files are checked before a byte is
parsed; every new file is hashed and must be what the proposed metadata names. A file under
any other name is refused, so that a private key copied here by mistake is noticed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.core.files import read_bounded
from stoilo.core.signatures import parse_strict_json
from stoilo.executor.verifier.targets import ProjectFile
from stoilo.executor.verifier.trust import REHEARSAL_MARK, ReleaseFiles
from stoilo.signer.ceremony.base_release import (
    BaseRelease,
    expired_roles,
    find_release,
    open_base,
    open_published,
    stored_name,
)
from stoilo.signer.ceremony.lists import read_list
from stoilo.signer.ceremony.metadata import RoleFile, parse_role_name, targets_of
from stoilo.signer.ceremony.proposal import NewTarget, Proposal
from stoilo.signer.ceremony.transcript import MAX_TRANSCRIPT_BYTES, TRANSCRIPT_FILE
from stoilo.signer.repository import DirectoryWriter
from stoilo.signer.roles import OFFLINE, ceremony_bounds

CEREMONY_FORMAT: Final = "stoilo-ceremony/1"
_ABOUT = "ceremony.json"
_ONLINE = "requests/online.json"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}"
_NAMES = re.compile(
    rf"ceremony\.json|transcript\.jsonl|requests/online\.json"
    rf"|(?:current|proposed)/metadata/{_WORD}\.json"
    rf"|(?:current|proposed)/targets(?:/{_WORD}){{1,3}}"
    rf"|builds(?:/{_WORD}){{2}}/{_WORD}\.json"
    rf"|boinc/(?:key\.pub|(?:{_WORD}/){{0,2}}{_WORD}\.sig)"
)
_HALF = re.compile(rf"\.{_WORD}\.new")  # of a writing that was interrupted: never read
_CHUNK = 1024 * 1024
MAX_DEPTH: Final = 8

NamedBytes = tuple[str, bytes]
"""A file's name below its part of the folder, and its bytes."""


class CeremonyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ceremony.json``."""

    # the project's name
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rehearsal: bool  # whether this is a staging project's
    # Unix seconds, by the clock of the machine that made the folder
    created: Annotated[int, msgspec.Meta(ge=1, le=2**40)]
    note: Annotated[str, msgspec.Meta(max_length=1024)] = ""  # for people: why
    # digest of the release it builds on, empty for the first one
    base: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    # whether the base had expired, and somebody said so on purpose
    renews_expired: bool = False
    format: Literal["stoilo-ceremony/1"] = "stoilo-ceremony/1"  # of this file


@dataclass(frozen=True, slots=True)
class Ceremony:
    """A folder's contents."""

    about: CeremonyFile  # what this is about
    proposal: Proposal  # metadata to sign, new files, and the release they build on
    # attestations, by ``<part>/<platform>/<key>.json``
    builds: tuple[NamedBytes, ...] = ()
    # BOINC's signatures and key, by ``<file>.sig`` and ``key.pub``
    boinc: tuple[NamedBytes, ...] = ()
    online: bytes = b""  # ``online.json`` of the server, empty when there is none
    transcript: bytes = b""  # ``transcript.jsonl``, empty when there is none

    @property
    def digest(self) -> Digest:
        """What people compare and sign; signatures do not change it."""
        return self.proposal.digest


def begin_on(
    directory: Path,  # a release directory, or a server's data directory
    now: int,
    *,
    note: str = "",  # why, for people
    renews_expired: bool = False,  # say on purpose that the release has run out
) -> Ceremony:
    """Return an empty ceremony on the release in `directory`.

    Raises ``STO-K052`` when the release does not hold, or has expired and nobody said so.
    """
    current = open_published(find_release(directory))
    for problem in () if renews_expired else expired_roles(current, now):
        raise problem
    about = CeremonyFile(
        origin=read_list(current.target, ProjectFile).origin,
        rehearsal=REHEARSAL_MARK in current.root.unrecognized_fields,
        created=now,
        note=note,
        base=current.digest,
        renews_expired=renews_expired,
    )
    return Ceremony(about, Proposal(current))


def add_builds(ceremony: Ceremony, builds: Iterable[NamedBytes]) -> Ceremony:
    """Return the ceremony with more attestations."""
    known = dict(ceremony.builds) | dict(builds)
    return replace(ceremony, builds=tuple(sorted(known.items())))


def read_folder(path: Path) -> Ceremony:
    """Read and check a ceremony's folder (hostile).

    Raises ``STO-K050`` when there is no such folder; ``STO-K050`` for what cannot be
    read, ``STO-K050`` for a file that does not belong there or is missing, ``STO-K052``
    for a base that does not hold, ``STO-K050`` for a new file that is not what the
    metadata names.
    """
    files = _list_files(path)
    if _ABOUT not in files:
        raise UsageError(
            "STO-K050",
            f"{path.name} is not a ceremony's folder: it has no {_ABOUT}",
            hint="make one with `stoilo release init` or `stoilo release request`",
        )
    about = _parse_about(_read(files[_ABOUT], _ABOUT))
    base = _read_current(files)
    if about.base != ("" if base is None else base.digest):
        raise TrustError("STO-K052", "current/ is not the release this was made for")
    metadata = tuple(_proposed_metadata(files))
    targets = tuple(_proposed_targets(files, base, metadata))
    return Ceremony(
        about=about,
        proposal=Proposal(base, metadata, targets),
        builds=tuple(_below(files, "builds/")),
        boinc=tuple(_below(files, "boinc/")),
        online=_read(files[_ONLINE], _ONLINE) if _ONLINE in files else b"",
        transcript=_read_transcript(files),
    )


def write_folder(path: Path, ceremony: Ceremony) -> None:
    """Write `ceremony` below `path`, durably; what is there and not in it is removed.

    Every file is replaced as a whole, the description last: a folder whose writing was
    interrupted is refused or complete.

    Raises ``STO-K050`` when the disk is full or read-only.
    """
    wanted: dict[str, bytes | Path] = dict(_files_of(ceremony))
    files = DirectoryWriter(path, file_mode=None, folder_mode=0o755)
    try:
        path.mkdir(parents=True, exist_ok=True)
        present = _list_files(path)
        for name, content in wanted.items():
            files.write(name, content)
        for name in present.keys() - wanted.keys():
            files.remove(name)
    except OSError as error:
        raise InternalError(
            "STO-K050",
            f"the folder cannot be written: {os.strerror(error.errno or 0)}",
            hint="make room, or take another stick; nothing signed is lost",
        ) from error


def _list_files(path: Path) -> dict[str, Path]:
    """Return every file below `path` by name, refusing what does not belong there."""
    found: dict[str, Path] = {}
    if not path.is_dir():
        raise UsageError("STO-K050", f"{path.name} is not a folder")
    for folder, folders, names in os.walk(path):
        if len(Path(folder).relative_to(path).parts) > MAX_DEPTH:
            raise TrustError("STO-K050", "the folder's folders are too deep")
        for name in (*folders, *names):
            file = Path(folder) / name
            relative = file.relative_to(path).as_posix()
            mode = file.lstat().st_mode
            if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and _HALF.fullmatch(name)):
                continue
            # A private key copied here by mistake shows before anybody
            # carries it on.
            if not stat.S_ISREG(mode) or not _NAMES.fullmatch(relative):
                raise TrustError(
                    "STO-K050",
                    f"{relative[:120]!r} does not belong into a ceremony's folder",
                    hint="take it away; if it is a private key, replace that key",
                )
            found[relative] = file
            # Counted while listing: a stick could hold millions.
            if len(found) > ceremony_bounds().max_files:
                raise TrustError("STO-K050", "the folder holds too many files")
    return found


def _read(file: Path, name: str, bound: int = 0) -> bytes:
    """Return a small file's bytes."""
    try:
        return read_bounded(file, bound or ceremony_bounds().metadata_bytes)
    except OSError as error:
        raise TrustError(
            "STO-K050", f"{name} cannot be read: {error.strerror}"
        ) from error


def _read_transcript(files: Mapping[str, Path]) -> bytes:
    if TRANSCRIPT_FILE not in files:
        return b""
    return _read(files[TRANSCRIPT_FILE], TRANSCRIPT_FILE, MAX_TRANSCRIPT_BYTES)


def _parse_about(data: bytes) -> CeremonyFile:
    bound = ceremony_bounds().metadata_bytes
    document = parse_strict_json(data, max_bytes=bound, what=_ABOUT)
    try:
        return msgspec.convert(document, type=CeremonyFile)
    except msgspec.ValidationError as error:
        raise TrustError("STO-K050", f"{_ABOUT} is malformed: {error}") from error


def _below(files: Mapping[str, Path], prefix: str) -> Iterator[NamedBytes]:
    """Yield the small files below `prefix`, named from there."""
    for name in sorted(files):
        if name.startswith(prefix):
            yield name.removeprefix(prefix), _read(files[name], name)


def _read_current(files: Mapping[str, Path]) -> BaseRelease | None:
    rows = tuple(_below(files, "current/"))
    return open_base(ReleaseFiles(rows)) if rows else None


def _proposed_metadata(files: Mapping[str, Path]) -> Iterator[RoleFile]:
    """Yield proposed metadata, at most one file a role, in the order of `OFFLINE`."""
    found: dict[str, RoleFile] = {}
    for name, data in _below(files, "proposed/metadata/"):
        parsed = parse_role_name(name)
        if parsed is None or parsed[1] not in OFFLINE or parsed[1] in found:
            raise TrustError("STO-K050", f"proposed/metadata/{name} is not one of ours")
        found[parsed[1]] = RoleFile(parsed[1], parsed[0], data)
    for role in OFFLINE:
        if role in found:
            yield found[role]


def _proposed_targets(
    files: Mapping[str, Path], base: BaseRelease | None, metadata: Iterable[RoleFile]
) -> Iterator[NewTarget]:
    """Yield every new target, hashed; refuses one that is missing, other or unnamed."""
    left = {name for name in files if name.startswith("proposed/targets/")}
    for role in metadata:
        if role.role == "root":
            continue
        for name, info in sorted(targets_of(role).items()):
            stored = f"proposed/targets/{stored_name(name, info.hashes['sha256'])}"
            if stored in files:
                left.discard(stored)
                yield _hashed(files[stored], name, info.hashes["sha256"], info.length)
            # What the release holds already does not travel again.
            elif base is None or base.info(name) != info:
                raise TrustError(
                    "STO-K050",
                    f"{stored} is missing",
                    hint="copy the folder again from where it was made",
                )
    if left:
        raise TrustError("STO-K050", f"no metadata names {min(left)}")


def _hashed(file: Path, name: str, digest: str, size: int) -> NewTarget:
    """Return a new target, its bytes checked against what metadata says of it."""
    small = size <= ceremony_bounds().metadata_bytes
    found = _digest_file(file, min(size, ceremony_bounds().archive_bytes))
    if found != digest:
        raise TrustError(
            "STO-K050",
            f"{name} is not the file that the metadata names",
            hint="copy it again; if it stays, do not sign: find out who changed it",
        )
    content = _read(file, name) if small else file
    # It was hashed as a file and read again: what is used is what was hashed.
    if isinstance(content, bytes) and content_digest(content) != digest:
        raise TrustError("STO-K050", f"{name} changed while it was read")
    return NewTarget(name, Digest(digest), size, content)


def _digest_file(file: Path, size: int) -> str:
    """Return the SHA-256 of a file of exactly `size` bytes, empty for another size."""
    state = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            # Cheaper than to hash a file that cannot be the one.
            if os.fstat(stream.fileno()).st_size != size:
                return ""
            while block := stream.read(_CHUNK):
                state.update(block)
    except OSError as error:
        raise TrustError("STO-K050", f"{file.name} cannot be read") from error
    return state.hexdigest()


def _files_of(ceremony: Ceremony) -> Iterator[tuple[str, bytes | Path]]:
    """Yield every file of a folder, its description last."""
    base = ceremony.proposal.base
    for name, data in base.files.files if base else ():
        yield f"current/{name}", data
    for one in ceremony.proposal.targets:
        yield f"proposed/targets/{one.stored}", one.content
    for file in ceremony.proposal.metadata:
        yield f"proposed/metadata/{file.name}", file.data
    for name, data in ceremony.builds:
        yield f"builds/{name}", data
    for name, data in ceremony.boinc:
        yield f"boinc/{name}", data
    if ceremony.online:
        yield _ONLINE, ceremony.online
    if ceremony.transcript:
        yield TRANSCRIPT_FILE, ceremony.transcript
    # Last: a folder without it is no ceremony, so half a copy is refused.
    about = msgspec.json.encode(ceremony.about)
    yield _ABOUT, msgspec.json.format(about, indent=2) + b"\n"
