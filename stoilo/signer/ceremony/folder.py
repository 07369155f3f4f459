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

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.core.files import read_bounded, sync_directory, write_durably
from stoilo.core.strict_json import parse_strict_json
from stoilo.executor.verifier.trust import ReleaseFiles
from stoilo.signer.ceremony.base_release import BaseRelease, open_base, stored_name
from stoilo.signer.ceremony.metadata import RoleFile, parse_role_name, targets_of
from stoilo.signer.ceremony.proposal import NewTarget, Proposal
from stoilo.signer.ceremony.transcript import MAX_TRANSCRIPT_BYTES, TRANSCRIPT_FILE
from stoilo.signer.repository import checked_pieces
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
    """``ceremony.json``.

    Attributes:
        origin: the project's name.
        rehearsal: whether this is a staging project's.
        created: Unix seconds, by the clock of the machine that made the folder.
        note: for people: why.
        base: digest of the release it builds on, empty for the first one.
        renews_expired: whether the base had expired, and somebody said so on purpose.
        format: of this file.
    """

    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rehearsal: bool
    created: Annotated[int, msgspec.Meta(ge=1, le=2**40)]
    note: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    base: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    renews_expired: bool = False
    format: Literal["stoilo-ceremony/1"] = "stoilo-ceremony/1"


@dataclass(frozen=True, slots=True)
class Ceremony:
    """A folder's contents.

    Attributes:
        about: what this is about.
        proposal: metadata to sign, new files, and the release they build on.
        builds: attestations, by ``<part>/<platform>/<key>.json``.
        boinc: BOINC's signatures and key, by ``<file>.sig`` and ``key.pub``.
        online: ``online.json`` of the server, empty when there is none.
        transcript: ``transcript.jsonl``, empty when there is none.
    """

    about: CeremonyFile
    proposal: Proposal
    builds: tuple[NamedBytes, ...] = ()
    boinc: tuple[NamedBytes, ...] = ()
    online: bytes = b""
    transcript: bytes = b""

    @property
    def digest(self) -> Digest:
        """What people compare and sign; signatures do not change it."""
        return self.proposal.digest


def read_folder(path: Path) -> Ceremony:
    """Read and check a ceremony's folder (hostile).

    Raises ``STO-K051`` when there is no such folder; ``STO-K050`` for what cannot be
    read, ``STO-K051`` for a file that does not belong there or is missing, ``STO-K052``
    for a base that does not hold, ``STO-K056`` for a new file that is not what the
    metadata names.
    """
    files = _list_files(path)
    if _ABOUT not in files:
        raise UsageError(
            "STO-K051",
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

    Raises ``STO-K051`` when the disk is full or read-only.
    """
    wanted: dict[str, bytes | Path] = dict(_files_of(ceremony))
    try:
        present = _list_files(path) if path.exists() else {}
        for name, content in wanted.items():
            _write(path / name, content)
        for name in present.keys() - wanted.keys():
            (path / name).unlink()
        _sync_all(path)
    except OSError as error:
        raise InternalError(
            "STO-K051",
            f"the folder cannot be written: {os.strerror(error.errno or 0)}",
            hint="make room, or take another stick; nothing signed is lost",
        ) from error


def _list_files(path: Path) -> dict[str, Path]:
    """Return every file below `path` by name, refusing what does not belong there."""
    found: dict[str, Path] = {}
    if not path.is_dir():
        raise UsageError("STO-K051", f"{path.name} is not a folder")
    for folder, folders, names in os.walk(path):
        if len(Path(folder).relative_to(path).parts) > MAX_DEPTH:
            raise TrustError("STO-K051", "the folder's folders are too deep")
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
                    "STO-K051",
                    f"{relative[:120]!r} does not belong into a ceremony's folder",
                    hint="take it away; if it is a private key, replace that key",
                )
            found[relative] = file
            # Counted while listing: a stick could hold millions.
            if len(found) > ceremony_bounds().max_files:
                raise TrustError("STO-K051", "the folder holds too many files")
    return found


def _read(file: Path, name: str, bound: int = 0) -> bytes:
    """Return a small file's bytes."""
    try:
        return read_bounded(file, bound or ceremony_bounds().metadata_bytes)
    except OSError as error:
        code = "STO-K050" if error.errno == errno.EFBIG else "STO-K051"
        raise TrustError(code, f"{name} cannot be read: {error.strerror}") from error


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
            raise TrustError("STO-K051", f"proposed/metadata/{name} is not one of ours")
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
                    "STO-K051",
                    f"{stored} is missing",
                    hint="copy the folder again from where it was made",
                )
    if left:
        raise TrustError("STO-K051", f"no metadata names {min(left)}")


def _hashed(file: Path, name: str, digest: str, size: int) -> NewTarget:
    """Return a new target, its bytes checked against what metadata says of it."""
    small = size <= ceremony_bounds().metadata_bytes
    found = _digest_file(file, min(size, ceremony_bounds().archive_bytes))
    if found != digest:
        raise TrustError(
            "STO-K056",
            f"{name} is not the file that the metadata names",
            hint="copy it again; if it stays, do not sign: find out who changed it",
        )
    content = _read(file, name) if small else file
    # It was hashed as a file and read again: what is used is what was hashed.
    if isinstance(content, bytes) and content_digest(content) != digest:
        raise TrustError("STO-K056", f"{name} changed while it was read")
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
        raise TrustError("STO-K051", f"{file.name} cannot be read") from error
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


def _write(file: Path, content: bytes | Path) -> None:
    """Write one file whole, unless it is there already."""
    if isinstance(content, Path):
        if content == file or _is_same(content, file):
            return
        digest = file.name.partition(".")[0]
        data: bytes | Iterable[bytes] = checked_pieces(content, digest)
    elif file.is_file() and file.read_bytes() == content:
        return
    else:
        data = content
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, data, mode=None)
    with contextlib.suppress(OSError):  # some sticks know no modes
        file.chmod(0o644)


def _is_same(content: Path, file: Path) -> bool:
    """Whether `file`, named by its digest, is a whole copy of `content` already."""
    size = content.stat().st_size
    named = PurePosixPath(file.name).name.partition(".")[0]
    return file.is_file() and _digest_file(file, size) == named


def _sync_all(path: Path) -> None:
    """Make every rename below `path` durable, and drop what is left over."""
    for name in os.walk(path, topdown=False):
        folder = Path(name[0])
        for half in folder.glob(".*.new"):
            half.unlink()
        if folder != path and not any(folder.iterdir()):
            folder.rmdir()
        else:
            sync_directory(folder)
