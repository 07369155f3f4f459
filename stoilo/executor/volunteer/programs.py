"""The project's own programs on this computer: fetched, checked, ready to be started.

A launcher and the verifier's archive come as the files of an app version, each with BOINC's
signature by the project's code-sign key, which is checked after the download and again
before every start. That key was learnt from the project itself, so a release under the
volunteer's own root must agree too (`ReleasedPrograms`), unless he said that he takes what the
project sends.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from stoilo.audit.format.records import RELEASE_PROOF_FILE, RELEASE_RECORD_FILE
from stoilo.core.boinc.codesign import check_boinc_signature, parse_boinc_public
from stoilo.core.boinc.messages import AppVersion, ProgramFile
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.frozen_tree import platform_name
from stoilo.core.limits import BOUNDS
from stoilo.executor.slot.layout import VERIFIER_ARCHIVE, Program
from stoilo.executor.verifier.installation import disk_trouble
from stoilo.executor.verifier.optin import LEVEL_ORDER
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import ReleaseFiles, travels
from stoilo.executor.volunteer.ledger import recall, save_record
from stoilo.executor.volunteer.scheduler_rpc import PLATFORM
from stoilo.executor.volunteer.transfer import Missing, Transfer
from stoilo.flavors.launcher_build import MAX_ARCHIVE_BYTES, MAX_LAUNCHER_BYTES

NAME: Final = "programs.json"
FOLDER: Final = "programs"
APPROVED_S: Final = 24 * 3600.0


Approve = Callable[[str, str], None]
"""Raises unless launcher and verifier with these SHA-256 digests may be started."""


class ReleasedPrograms:
    """Only launcher and verifier of the release under the volunteer's own root.

    Args:
        fetch: returns the project's release, verified up to that root; asked again after
            a day, and for digests that it did not name.
        platform: as in tree manifests; empty: this computer's.
        clock: s, monotonic.
    """

    def __init__(
        self,
        fetch: Callable[[], TrustedRelease],
        *,
        platform: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._platform = platform or platform_name()
        self._clock = clock
        self._agreed: dict[tuple[str, str], float] = {}

    def check(self, launcher: str, verifier: str) -> None:
        """Compare both digests with the release; an `Approve`.

        Raises:
            TrustError: STO-X043 they are not the release's.
            UnreachableError: the release cannot be fetched now.
        """
        pair = (launcher, verifier)
        agreed = self._agreed.get(pair)
        if agreed is not None and self._clock() - agreed < APPROVED_S:
            return
        self._agreed.pop(pair, None)
        trust = self._fetch()
        for name, digest in (("launcher", launcher), ("verifier", verifier)):
            part = trust.part(name, self._platform)
            if part is None or part.archive.sha256 != digest:
                raise TrustError(
                    "STO-X043", f"the project's {name} is not the one of its release"
                )
        self._agreed[pair] = self._clock()


class Programs:
    """The newest app version of each app, on the disk.

    Args:
        directory: the project's own directory; both files lie in ``programs/``.
        transfer: to the project.
        key: returns the project's code-sign key as it is known now.
        approve: who must agree beside that key, None for nobody.

    Raises:
        InternalError: STO-X008 the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        transfer: Transfer,
        key: Callable[[], str],
        approve: Approve | None = None,
    ) -> None:
        self._index = directory / NAME
        self._folder = directory / FOLDER
        self._transfer = transfer
        self._key = key
        self._approve = approve
        self._lock = threading.Lock()  # of what is known: held for moments
        self._fetching = threading.Lock()  # of the files: one start at a time
        # Lost, the project tells them again with the next copy.
        versions = recall(self._index, list[AppVersion], [])
        self._versions = {item.app: item for item in versions}
        with disk_trouble("the project's programs cannot be kept"):
            self._folder.mkdir(mode=0o700, exist_ok=True)

    def learn(self, versions: tuple[AppVersion, ...]) -> None:
        """Take the app versions of a reply, durably; older ones of the same app go."""
        with self._lock:
            known = dict(self._versions)
            for item in versions:
                if item.app not in LEVEL_ORDER:
                    continue  # no task of it could run here
                before = known.get(item.app)
                ours = item.platform in {"", PLATFORM}
                if ours and (before is None or item.version_num >= before.version_num):
                    known[item.app] = item
            if known == self._versions:
                return
            save_record(self._index, [known[app] for app in sorted(known)])
            self._versions = known
        if self._fetching.acquire(blocking=False):  # else they go the next time
            try:
                self._drop_others()
            finally:
                self._fetching.release()

    def ready(self, app: str) -> Program:
        """Return the program of `app`, fetched if need be, its signatures checked anew.

        Raises:
            TrustError: STO-X042 a signature, STO-X043 not of the release, STO-X043 none.
            UnreachableError: STO-X001 it cannot be fetched now.
            InternalError: STO-X008.
        """
        with self._fetching:
            main, archive = self._choose(app)
            launcher = self._fetched(main, MAX_LAUNCHER_BYTES)
            verifier = self._fetched(archive, MAX_ARCHIVE_BYTES)
            if self._approve is not None:
                self._approve(
                    *(_digest(path, hashlib.sha256) for path in (launcher, verifier))
                )
            launcher.chmod(0o500)
            return Program(launcher, verifier)

    def _choose(self, app: str) -> tuple[ProgramFile, ProgramFile]:
        """Return launcher and verifier of an app; raises ``STO-X043``."""
        with self._lock:
            version = self._versions.get(app)
        files = version.files if version is not None else ()
        main = next((file for file in files if file.main), None)
        archive = next((f for f in files if f.open_name == VERIFIER_ARCHIVE), None)
        if main is None or archive is None or main.info.name == archive.info.name:
            raise TrustError(
                "STO-X043", f"the project has no program of {app!r} for this computer"
            )
        return main, archive

    def _fetched(self, file: ProgramFile, most: int) -> Path:
        info, target = file.info, self._folder / file.info.name
        if info.nbytes > most:
            raise TrustError("STO-X042", "a program is larger than any may be")
        self._transfer.download(info, target)
        try:
            self._check(file, target)
        except TrustError as error:
            with suppress(OSError):
                target.unlink()
            raise TrustError(
                "STO-X042", "a program lacks a signature by the project's key"
            ) from error
        return target

    def _check(self, file: ProgramFile, path: Path) -> None:
        """Raise unless the bytes on the disk are what the project's key has signed."""
        md5 = _digest(path, _md5)
        check_boinc_signature(md5, file.signature, parse_boinc_public(self._key()))

    def _drop_others(self) -> None:
        """Remove files that no known version names; running ones keep theirs open."""
        named = {f.info.name for item in self._versions.values() for f in item.files}
        for path in self._folder.iterdir():
            if path.name.removesuffix(".part") not in named:
                with suppress(OSError):
                    path.unlink()


_md5 = partial(hashlib.md5, usedforsecurity=False)  # as BOINC signs


def _digest(path: Path, algorithm: Callable[[], hashlib._Hash]) -> str:
    """Return a file's digest; raises ``STO-X008``."""
    with disk_trouble("the project's programs cannot be kept"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return hashlib.file_digest(file, algorithm).hexdigest()


INDEX: Final = "release/index.json"
MAX_INDEX_BYTES: Final = 2 * 1024 * 1024
MAX_FILES: Final = 512
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
    """What a server says it published; hostile."""

    files: ReleaseFiles  # metadata and small targets
    record: bytes = b""  # what the log tells of the release; empty without a proof
    proof: bytes = b""  # that it tells so; empty without one


def fetch_release(project: str, ca: Path | None = None) -> FetchedRelease:
    """Fetch the release of the project with this master URL.

    `ca`: certificates to trust instead of the system's, None for the system's. They
    only let us read; what comes is verified up to the volunteer's own root.

    Raises:
        UsageError: STO-U003 no http(s) URL.
        TrustError: STO-K013 what comes is no release, or too large.
        UnreachableError: STO-X001.
    """
    if not project.startswith(("http://", "https://")):
        raise UsageError("STO-U003", "--project must be an http(s) URL")
    transfer = Transfer(f"{project.rstrip('/')}/", ca=ca, redirects=REDIRECTS)
    try:
        return _fetch_release(transfer)
    finally:
        transfer.close()


def _fetch_release(transfer: Transfer) -> FetchedRelease:
    try:
        names = wanted_names(_listed_names(transfer.get(INDEX, MAX_INDEX_BYTES)))
        most = BOUNDS.metadata_bytes
        files = [(name, transfer.get(f"release/{name}", most)) for name in names]
    except TrustError as error:
        raise TrustError("STO-K013", error.message, hint=error.hint) from error
    try:
        record = transfer.get(f"release/{RELEASE_RECORD_FILE}", most)
        proof = transfer.get(f"release/{RELEASE_PROOF_FILE}", BOUNDS.proof_bytes)
    except Missing:
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
    found = tuple(sorted({*wanted, *(name for _, name in newest.values())}))
    if len(found) > MAX_FILES:
        raise TrustError("STO-K013", f"the release has more than {MAX_FILES} files")
    return found


def _listed_names(data: bytes) -> tuple[str, ...]:
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
