"""From a root and a release's files to a `TrustedRelease`: TUF by python-tuf's own client.

The client workflow (root chain, thresholds, rollback, expiry, hashes) is
`tuf.ngclient.Updater`'s; files come from memory instead of a network, so every check is
offline. Trust: `root` comes from the executor itself (frozen) or from ``--root FILE``;
all other files are hostile until the workflow has accepted them.
Source: TUF specification 1.0.34 §5.3 to §5.6.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root
from tuf.ngclient.config import UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface
from tuf.ngclient.updater import Updater

from stoilo.audit.policy import parse_policy
from stoilo.core.ed25519 import parse_public_key
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.strictjson import parse_strict_json
from stoilo.executor.release import (
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
    read_epoch,
    read_target,
)

__all__ = [
    "DEVELOPMENT_MARK",
    "RELEASE_BUILD",
    "ReleaseFiles",
    "is_development_root",
    "load_trust",
    "pack_release",
    "parse_release_pack",
    "read_release",
]

RELEASE_BUILD: Final = False
"""Frozen release builds set this to True; then development roots are refused (I3)."""

DEVELOPMENT_MARK: Final = "x-stoilo-development"

MAX_FILES = 512
MAX_PACK_BYTES = 8 * 1024 * 1024
_BASE = "release:///"
_NAME = re.compile(r"(metadata|targets)(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){1,3}")
_CONFIG = UpdaterConfig(
    max_root_rotations=64,
    max_delegations=8,
    root_max_length=BOUNDS.metadata_bytes,
    timestamp_max_length=16 * 1024,
    snapshot_max_length=BOUNDS.metadata_bytes,
    targets_max_length=BOUNDS.metadata_bytes,
)


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """A release's public files, hostile: ``metadata/…`` and ``targets/…`` by name."""

    files: tuple[tuple[str, bytes], ...]

    def get(self, name: str) -> bytes | None:
        """Return the bytes of file `name`."""
        return next((data for known, data in self.files if known == name), None)


def read_release(directory: Path) -> ReleaseFiles:
    """Read the release below `directory`, also while it is being published.

    The timestamp is read first: whatever it leads to was there before it.

    Raises:
        TrustError: STO-K013 past the bounds, STO-K014 when a file cannot be read.
    """
    first = directory / "metadata" / "timestamp.json"
    files = [_read_file(directory, first)] if first.exists() else []
    paths = sorted(
        path
        for part in ("metadata", "targets")
        for path in (directory / part).rglob("*")
        if path != first
        and not path.name.startswith(".")
        and path.is_file()
        and not path.is_symlink()
    )
    if len(paths) >= MAX_FILES:
        raise TrustError("STO-K013", f"a release has at most {MAX_FILES} files")
    for path in paths:
        try:
            files.append(_read_file(directory, path))
        except FileNotFoundError:
            continue  # an old snapshot was removed meanwhile
    return ReleaseFiles(tuple(files))


def _read_file(directory: Path, path: Path) -> tuple[str, bytes]:
    """Return one file's name and bytes, bounded."""
    try:
        with path.open("rb") as file:
            data = file.read(BOUNDS.metadata_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TrustError("STO-K014", f"{path.name} cannot be read") from error
    return _checked_file(path.relative_to(directory).as_posix(), data)


def _checked_file(name: str, data: bytes) -> tuple[str, bytes]:
    """Refuse names that are not a release's, and files past the bound."""
    if not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts:
        raise TrustError("STO-K013", f"{name[:64]!r} is not a release file's name")
    if len(data) > BOUNDS.metadata_bytes:
        raise TrustError("STO-K013", f"{name} is larger than a release file may be")
    return name, data


def pack_release(files: ReleaseFiles) -> bytes:
    """Return the release as one file, for workunits and for downloads."""
    rows = (
        b'"%s":"%s"' % (name.encode(), base64.b64encode(data))
        for name, data in files.files
    )
    return b"{" + b",".join(rows) + b"}\n"


def parse_release_pack(data: bytes) -> ReleaseFiles:
    """Parse `pack_release`'s file (hostile); raises ``STO-K013`` or JSON's codes."""
    document = parse_strict_json(data, max_bytes=MAX_PACK_BYTES, what="release")
    if not isinstance(document, dict) or len(document) > MAX_FILES:
        raise TrustError("STO-K013", "the release is not one of bounded files")
    files = []
    for name, text in document.items():
        try:
            content = base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError) as error:
            raise TrustError("STO-K013", "a release file is not base64") from error
        files.append(_checked_file(name, content))
    return ReleaseFiles(tuple(files))


def is_development_root(root: bytes) -> bool:
    """Whether root metadata carries the development mark; raises ``STO-K013``."""
    try:
        signed = Metadata[Root].from_bytes(root).signed
    except (exceptions.RepositoryError, ValueError) as error:
        raise TrustError("STO-K013", "the root cannot be read") from error
    return bool(signed.unrecognized_fields.get(DEVELOPMENT_MARK))


def load_trust(
    files: ReleaseFiles | Path,
    root: bytes,
    now: int,
    *,
    installed: InstalledRelease,
    cache: Path | None = None,
    release_build: bool = RELEASE_BUILD,
) -> TrustedRelease:
    """Verify a release up to `root` and return what it says.

    Args:
        files: the release, or the directory it lies in; hostile.
        root: the trusted root metadata.
        now: Unix seconds.
        installed: levels and language layer of this executor's own package.
        cache: this host's own directory, outside project and slot directories, where
            the newest metadata is remembered; without it rollback between calls cannot
            be seen.
        release_build: can only make it stricter than `RELEASE_BUILD`.

    Raises:
        TrustError: STO-K010 to STO-K015 and the codes of keys and policies inside.
        InternalError: STO-X008 when the cache cannot be read or written.
    """
    if (release_build or RELEASE_BUILD) and is_development_root(root):
        raise _development_refused()
    if isinstance(files, Path):
        files = read_release(files)
    with _tuf_errors(), _cache_directory(cache) as folder:
        updater = _ReleaseUpdater(folder, files, root, now)
        updater.refresh()
        trusted = _collect(updater, installed)
    if trusted.development and (release_build or RELEASE_BUILD):
        raise _development_refused()
    return trusted


class _MemoryFetcher(FetcherInterface):
    """Serves a release's files to python-tuf's client."""

    def __init__(self, files: ReleaseFiles) -> None:
        self._files = files

    def _fetch(self, url: str) -> Iterator[bytes]:
        """Yield a file's bytes; a missing one is the client's HTTP 404."""
        data = self._files.get(url.removeprefix(_BASE))
        if data is None:
            raise exceptions.DownloadHTTPError(f"no file {url}", 404)
        yield data

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """Return a file's bytes without going through a temporary file."""
        data = next(self._fetch(url))
        if len(data) > max_length:
            raise exceptions.DownloadLengthMismatchError(f"{url} is too large")
        return data


class _ReleaseUpdater(Updater):
    """python-tuf's client with the caller's clock, and targets kept in memory."""

    def __init__(
        self, folder: Path, files: ReleaseFiles, root: bytes, now: int
    ) -> None:
        self._memory = _MemoryFetcher(files)
        super().__init__(
            str(folder),
            f"{_BASE}metadata/",
            fetcher=self._memory,
            config=_CONFIG,
            bootstrap=root,
        )
        # The only private name used: the client has no parameter for the time.
        self._trusted_set.reference_time = datetime.fromtimestamp(now, UTC)

    def read(self, name: str) -> bytes:
        """Return target `name`, checked against the metadata; raises ``STO-K014``."""
        info = self.get_targetinfo(name)
        if info is None:
            raise TrustError("STO-K014", f"the release does not name {name}")
        path = PurePosixPath("targets", name)
        stored = path.with_name(f"{next(iter(info.hashes.values()))}.{path.name}")
        data = self._memory.download_bytes(f"{_BASE}{stored}", info.length)
        info.verify_length_and_hashes(data)
        return data

    def versions(self) -> tuple[int, int, int]:
        """Return the versions of root, targets and timestamp."""
        known = self._trusted_set
        return known.root.version, known.targets.version, known.timestamp.version

    def first_expiry(self) -> int:
        """Return when the first top-level role expires, Unix seconds."""
        known = self._trusted_set
        roles = (known.root, known.timestamp, known.snapshot, known.targets)
        return int(min(role.expires for role in roles).timestamp())

    def is_development(self) -> bool:
        """Whether the newest root is marked."""
        fields = self._trusted_set.root.unrecognized_fields
        return bool(fields.get(DEVELOPMENT_MARK))


def _collect(updater: _ReleaseUpdater, installed: InstalledRelease) -> TrustedRelease:
    """Read every target that the verifier needs."""
    project = read_target(updater.read("project.json"), ProjectFile, "project.json")
    denied = read_target(
        updater.read("revocation/denied.json"), RevocationFile, "revocation/denied.json"
    )
    policies = read_target(
        updater.read("policy/accepted.json"), PolicyFile, "policy/accepted.json"
    )
    reviewers = read_target(
        updater.read("reviewers.json"), ReviewerFile, "reviewers.json"
    )
    root, targets, timestamp = updater.versions()
    return TrustedRelease(
        origin=project.origin,
        development=updater.is_development(),
        root_version=root,
        targets_version=targets,
        timestamp_version=timestamp,
        expires=updater.first_expiry(),
        epochs=tuple(
            read_epoch(updater.read(f"gate/{number}.json"), number)
            for number in sorted(set(project.epochs))
        ),
        log_policy=parse_policy(updater.read("log/policy.txt")),
        levels=tuple(
            level
            for level in installed.levels
            if project.levels.get(level.name) == level.digest
        ),
        languages=frozenset(project.languages),
        installed_language=installed.language_digest,
        python=installed.python,
        policies=frozenset(policies.digests),
        denied=frozenset(denied.digests),
        revoked_epochs=frozenset(denied.epochs),
        min_epoch=denied.min_epoch,
        reviewers=tuple(parse_public_key(key) for key in reviewers.keys),
    )


@contextmanager
def _cache_directory(cache: Path | None) -> Iterator[Path]:
    """Yield the client's own directory, locked: several tasks start at once."""
    if cache is None:
        with tempfile.TemporaryDirectory(prefix="stoilo-release-") as folder:
            yield Path(folder)
        return
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


@contextmanager
def _tuf_errors() -> Iterator[None]:
    """Turn python-tuf's errors into ours."""
    try:
        yield
    except exceptions.ExpiredMetadataError as error:
        raise TrustError("STO-K011", f"expired: {error}") from error
    except exceptions.BadVersionNumberError as error:
        raise TrustError("STO-K010", f"a version went back: {error}") from error
    except exceptions.UnsignedMetadataError as error:
        raise TrustError("STO-K012", f"too few signatures: {error}") from error
    except exceptions.DownloadHTTPError as error:
        raise TrustError("STO-K014", f"a file is missing: {error}") from error
    except OSError as error:  # this machine's trouble, no reason to distrust
        raise InternalError(
            "STO-X008",
            f"the release's cache cannot be used (errno {error.errno})",
            hint="make room on the disk",
        ) from error
    except (exceptions.RepositoryError, exceptions.DownloadError) as error:
        raise TrustError("STO-K013", f"release metadata: {error}") from error


def _development_refused() -> TrustError:
    """Return the refusal of a development root."""
    return TrustError(
        "STO-K015",
        "this executor is a release build and the root is one of development",
        hint="attach to a project with a real root",
    )
