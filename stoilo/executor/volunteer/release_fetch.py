"""A project's published release from its server, for a volunteer who compares.

Not part of the verifier, which never opens a connection. Everything fetched is hostile and
bounded; `executor.verifier.release.trust` verifies it up to the volunteer's own root.
"""

from __future__ import annotations

import http
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.audit.format.proof import RELEASE_PROOF_FILE, RELEASE_RECORD_FILE
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.core.http_client import AnswerTooLargeError, HttpClient, HttpError
from stoilo.core.limits import BOUNDS
from stoilo.executor.verifier.release.pack import ReleaseFiles, travels

INDEX: Final = "index.json"
MAX_INDEX_BYTES: Final = 2 * 1024 * 1024
MAX_FILES: Final = 512
TIMEOUT_S: Final = 20.0
ANSWER_S: Final = 120.0
REDIRECTS: Final = 10  # as urllib follows: a project may have moved
_METADATA = re.compile(r"metadata/(?:([0-9]{1,10})\.)?([a-z]{1,32})\.json")
_TARGET = re.compile(
    r"targets/((?:[A-Za-z0-9_-]{1,64}/){0,2})[0-9a-f]{64}\.([\w.-]{1,64})"
)


class _IndexedFile(msgspec.Struct, frozen=True):
    """What of a line of the index is used."""

    name: Annotated[str, msgspec.Meta(max_length=512)]


class _Index(msgspec.Struct, frozen=True):
    """The server's list of public files; signed by nobody, only saves searching."""

    format: Literal["stoilo-release-index/1"]
    files: Annotated[tuple[_IndexedFile, ...], msgspec.Meta(max_length=8192)]


@dataclass(frozen=True, slots=True)
class FetchedRelease:
    """What a server says it published; hostile.

    Attributes:
        files: metadata and small targets.
        record: what the log tells of the release; empty without a proof.
        proof: that it tells so; empty without one.
    """

    files: ReleaseFiles
    record: bytes = b""
    proof: bytes = b""


def fetch_release(project: str, ca: Path | None = None) -> FetchedRelease:
    """Fetch the release of the project with this master URL.

    Args:
        project: its master URL.
        ca: certificates to trust instead of the system's, None for the system's. They
            only let us read; what comes is verified up to the volunteer's own root.

    Raises:
        UsageError: STO-U003 no http(s) URL.
        TrustError: STO-K013 what comes is no release, or too large.
        UnreachableError: STO-X001.
    """
    if not project.startswith(("http://", "https://")):
        raise UsageError("STO-U003", "--project must be an http(s) URL")
    base = f"{project.rstrip('/')}/release/"
    fetch = partial(_fetch, HttpClient(ca=ca, read_s=TIMEOUT_S, redirects=REDIRECTS))
    names = wanted_names(_read_index(fetch(base + INDEX, MAX_INDEX_BYTES)))
    if len(names) > MAX_FILES:
        raise TrustError("STO-K013", f"the release has more than {MAX_FILES} files")
    files = [(name, fetch(base + name, BOUNDS.metadata_bytes)) for name in names]
    try:
        record = fetch(base + RELEASE_RECORD_FILE, BOUNDS.metadata_bytes)
        proof = fetch(base + RELEASE_PROOF_FILE, BOUNDS.proof_bytes)
    except _NotThere:
        record = proof = b""
    return FetchedRelease(ReleaseFiles(tuple(files)), record, proof)


def wanted_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what of a release's files a verifier needs: the newest of each role."""
    newest: dict[str, tuple[int, str]] = {}
    wanted = []
    for name in names:
        role, target = _METADATA.fullmatch(name), _TARGET.fullmatch(name)
        if role and (role[1] is None or role[2] == "root"):
            wanted.append(name)
        elif role:
            newest[role[2]] = max(newest.get(role[2], (0, "")), (int(role[1]), name))
        elif target and travels(target[1] + target[2]):
            wanted.append(name)
    return tuple(sorted({*wanted, *(name for _, name in newest.values())}))


class _NotThere(UnreachableError):
    """The server has no such file."""


def _read_index(data: bytes) -> tuple[str, ...]:
    """Return the names in a hostile index."""
    try:
        index = msgspec.json.decode(data, type=_Index)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise TrustError(
            "STO-K013",
            "there is no list of a release at this address",
            hint="say the project's master URL, as your client knows it",
        ) from error
    return tuple(file.name for file in index.files)


def _fetch(client: HttpClient, url: str, most: int) -> bytes:
    """Return a file of at most `most` bytes."""
    try:
        answer = client.fetch("GET", url, most=most, within_s=ANSWER_S)
    except AnswerTooLargeError as error:
        raise TrustError("STO-K013", f"{url} is larger than {most:,} bytes") from error
    except HttpError as error:
        raise UnreachableError(
            "STO-X001", f"{url} cannot be fetched: {error}"
        ) from error
    if answer.status != http.HTTPStatus.OK:
        missing = answer.status == http.HTTPStatus.NOT_FOUND
        kind = _NotThere if missing else UnreachableError
        raise kind("STO-X001", f"{url} cannot be fetched: HTTP {answer.status}")
    return answer.body
