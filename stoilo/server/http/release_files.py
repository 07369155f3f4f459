"""The release over HTTP: ``/release/``, for volunteers who check and for mirrors.

    /release/index.json             what there is: name, size, SHA-256 of every file
    /release/status.json            what expires when
    /release/root.json              the first root
    /release/metadata/…, targets/…  as TUF names them; archives with Range
    /release/release.record.json    what the log says of the release, and
    /release/release.tlog-proof     that it says so
    /release/builds/…, boinc/…, transcript.jsonl    as the ceremony published them

Read-only, and by names only: the keys lie in the same directory, so a file is answered when
its whole name is one of a public file, and in no other case. What never changes under its
name may be cached for ever, all else is asked for anew each time.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from stoilo.audit.format.records import RELEASE_PROOF_FILE, RELEASE_RECORD_FILE
from stoilo.core.errors import TrustError
from stoilo.server.http.log_files import (
    FOREVER,
    REVALIDATE,
    file_headers,
    render_file,
    render_missing,
)
from stoilo.signer.ceremony.transcript import TRANSCRIPT_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from stoilo.signer.ceremony.release_status import ReleaseStatus


INDEX_FORMAT: Final = "stoilo-release-index/1"
MAX_INDEXED: Final = 4096
STATUS_S: Final = 1.0
# Files up to here are answered from memory and hashed when they are read
MAX_SMALL_BYTES: Final = 4 * 1024 * 1024

_WORD = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}"
_TARGET = re.compile(rf"targets(?:/{_WORD}){{0,3}}/([0-9a-f]{{64}})\.{_WORD}")
_VERSIONED = re.compile(r"metadata/[1-9][0-9]{0,9}\.[a-z]{1,32}\.json")
_CHANGING = re.compile(
    rf"root\.json|metadata/timestamp\.json|{re.escape(TRANSCRIPT_FILE)}"
    rf"|{re.escape(RELEASE_RECORD_FILE)}|{re.escape(RELEASE_PROOF_FILE)}"
    rf"|builds(?:/{_WORD}){{2}}/{_WORD}\.json"
    rf"|boinc/(?:key\.pub|(?:{_WORD}/){{0,2}}{_WORD}\.sig)"
)
_PROOFS: Final = frozenset({RELEASE_RECORD_FILE, RELEASE_PROOF_FILE})
_FOLDERS: Final = ("metadata", "targets", "builds", "boinc")


class IndexedFile(msgspec.Struct, frozen=True):
    """One file: name below ``/release/``, size in bytes, SHA-256."""

    name: str
    size: int
    sha256: str


class ReleaseIndex(msgspec.Struct, frozen=True):
    """``index.json``: every public file of the release, by name.

    A convenience for mirrors; it is signed by nobody, and nothing relies on it.
    """

    format: str
    files: tuple[IndexedFile, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A public file: where it lies, its size, and its state for caches."""

    path: Path
    size: int
    changed_ns: int


def is_public_name(name: str) -> bool:
    """Whether `name`, relative to the release's directory, is one of a public file."""
    return any(pattern.fullmatch(name) for pattern in (_TARGET, _VERSIONED, _CHANGING))


def read_index(directory: Path, proofs: Path | None = None) -> ReleaseIndex:
    """Return the list of all public files below `directory`.

    Record and proof of the log lie in `proofs` where that is given. A target's digest is
    the one in its name: archives are not read for the index.

    Raises:
        TrustError: STO-K013 for more files than a release has.
    """
    files = []
    for name in _public_names(directory, proofs or directory):
        found = _find(directory, name, proofs)
        if found is None:
            continue
        # Archives have hundreds of MiB; their names carry the digest.
        target = _TARGET.fullmatch(name)
        digest = target[1] if target else _digest(found.path)
        files.append(IndexedFile(name, found.size, digest))
        if len(files) > MAX_INDEXED:
            raise TrustError("STO-K013", f"a release has at most {MAX_INDEXED} files")
    return ReleaseIndex(INDEX_FORMAT, tuple(files))


def release_routes(
    directory: Path, status: Callable[[], ReleaseStatus], proofs: Path | None = None
) -> list[Route]:
    """Return the routes that serve the release in `directory` (``DIR/keys``).

    Record and proof of the log lie in `proofs` where that is given.
    """
    indexed = _Cached(
        lambda: tuple(_folder_stamps(directory, proofs)),
        lambda: read_index(directory, proofs),
    )
    judged = _Cached(lambda: time.monotonic() // STATUS_S, status)

    def answer(request: Request) -> Response:
        name = str(request.path_params["name"])
        known = is_public_name(name)
        found = _find(directory, name, proofs) if known else None
        return _answer(request, name, found)

    def index(request: Request) -> Response:
        return render_file(request, indexed.read(), "application/json", REVALIDATE)

    def standing(request: Request) -> Response:
        return render_file(request, judged.read(), "application/json", REVALIDATE)

    return [
        Route("/release/index.json", index, methods=["GET"]),
        Route("/release/status.json", standing, methods=["GET"]),
        Route("/release/{name:path}", answer, methods=["GET"]),
    ]


class _Cached:
    """A page as JSON, made anew when its stamp is another one, however many ask."""

    def __init__(
        self, stamp: Callable[[], object], make: Callable[[], msgspec.Struct]
    ) -> None:
        self._stamp = stamp
        self._make = make
        self._known: tuple[object, bytes] = None, b""

    def read(self) -> bytes:
        """Return the page."""
        stamp = self._stamp()
        if stamp != self._known[0] or not self._known[1]:
            self._known = stamp, msgspec.json.encode(self._make())
        return self._known[1]


def _folder_stamps(directory: Path, proofs: Path | None) -> Iterator[int]:
    yield directory.stat().st_mtime_ns
    if proofs is not None:
        yield proofs.stat().st_mtime_ns
    for folder in _FOLDERS:
        for root, _, _ in os.walk(directory / folder):
            yield Path(root).stat().st_mtime_ns


def _answer(request: Request, name: str, found: _Found | None) -> Response:
    if found is None:
        return render_missing()
    target = _TARGET.fullmatch(name)
    cache = REVALIDATE if _CHANGING.fullmatch(name) else FOREVER
    media = "application/json" if name.endswith(".json") else "application/octet-stream"
    # Whole archives are streamed, with ranges: a volunteer's download goes on.
    if found.size <= MAX_SMALL_BYTES and "range" not in request.headers:
        digest = target[1] if target else ""
        return render_file(request, _read(found.path), media, cache, digest)
    mark = f'"{target[1]}"' if target else f'"{found.changed_ns:x}-{found.size:x}"'
    headers, is_known = file_headers(request, mark, cache)
    if is_known:
        return Response(status_code=304, headers=headers)
    return FileResponse(found.path, media_type=media, headers=headers)


def _find(directory: Path, name: str, proofs: Path | None) -> _Found | None:
    """Return the plain file called `name`, whose form was checked; None for none."""
    path = (proofs or directory if name in _PROOFS else directory) / name
    try:
        seen = path.lstat()
    except OSError:
        return None
    # A link could lead to the keys, which lie in the same directory.
    if not stat.S_ISREG(seen.st_mode):
        return None
    return _Found(path, seen.st_size, seen.st_mtime_ns)


def _public_names(directory: Path, proofs: Path) -> Iterator[str]:
    """Yield the names of public files, sorted; nothing else is even looked at."""
    paths = [path for path in directory.glob("*") if path.is_file()]
    for folder in _FOLDERS:
        paths += (directory / folder).rglob("*")
    names = {path.relative_to(directory).as_posix() for path in paths} - _PROOFS
    names |= {name for name in _PROOFS if (proofs / name).is_file()}
    yield from sorted(name for name in names if is_public_name(name))


def _read(path: Path) -> bytes | None:
    """Return a small file's bytes; None when it has just gone."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_SMALL_BYTES)
    except OSError:
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
