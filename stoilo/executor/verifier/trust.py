"""From a root and a release's files to a `TrustedRelease`: TUF by python-tuf's own client.

Trust: `root` comes from the executor itself (frozen) or from ``--root FILE``; all other
files are hostile until the workflow of `tuf_client` has accepted them.
Every check is offline. Source: TUF specification 1.0.34 §5.3 to §5.6.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root, TargetFile

from stoilo.audit.format.policy import (
    LogPolicy,
    parse_history,
    parse_policy,
    with_history,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level
from stoilo.core.limits import BOUNDS
from stoilo.core.signatures import Json, parse_public_key, parse_strict_json
from stoilo.executor.verifier.targets import (
    BuilderFile,
    FloorsFile,
    InstalledRelease,
    PolicyFile,
    ProjectFile,
    Reviewer,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
    read_epochs,
    read_parts,
    read_target,
)
from stoilo.executor.verifier.tuf_client import (
    ReleaseFiles,
    ReleaseUpdater,
    cache_directory,
    travels,
)

MAX_BYTES = BOUNDS.metadata_bytes
MAX_FILES = 512
MAX_ROLES = 32
READ_AGAIN = 5
_VERSIONED = re.compile(r"([0-9]{1,10})\.([a-z]{1,32})\.json")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_PACK_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"(metadata|targets)(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){1,3}")


def read_release(directory: Path) -> ReleaseFiles:
    """Read what travels of the release in `directory`, also while it is published.

    These are every version of the root, what the timestamp leads to, and the newest of
    each role, which a ceremony may have published before the timestamp names it. Older
    ones and their files stay in the directory and are left out. Nothing is verified
    here: what cannot be followed is left for `load_trust` to name.

    Raises:
        TrustError: STO-K013 past the bounds, STO-K014 when a file cannot be read.
    """
    for _ in range(READ_AGAIN):
        files = _read_reachable(directory)
        if files is not None:
            break
    else:
        raise TrustError("STO-K014", "the release changed while it was read")
    if len(files) > MAX_FILES:
        raise TrustError("STO-K013", f"a release has at most {MAX_FILES} files")
    return ReleaseFiles(tuple(files.items()))


class _Walk:
    """Reads files of a release one by one, as each leads to the next."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.found: dict[str, bytes] = {}

    def take(self, name: str) -> bytes:
        """Read one file; an absent one is empty, and left to `load_trust`."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.found[name] = _read_file(self._directory, name)
        return self.found.get(name, b"")

    def take_role(self, name: str) -> None:
        """Read a targets role and what travels of its targets."""
        for target, stored in _stored(self.take(name)):
            if travels(target):
                self.take(stored)


def _read_reachable(directory: Path) -> dict[str, bytes] | None:
    """Return the files by name; None when the snapshot was replaced meanwhile."""
    walk = _Walk(directory)
    timestamp = walk.take("metadata/timestamp.json")
    names = [path.name for path in (directory / "metadata").glob("*.json")]
    for name in names:
        if name.endswith(".root.json"):
            walk.take(f"metadata/{name}")
    snapshots = [f"metadata/{version}.{name}" for name, version in _listed(timestamp)]
    for snapshot in snapshots:
        for role, number in _listed(walk.take(snapshot)):
            walk.take_role(f"metadata/{number}.{role}")
    for name in _newest(names):
        walk.take_role(f"metadata/{name}")
    lost = any(snapshot not in walk.found for snapshot in snapshots)
    return None if lost and _is_old(directory, walk.found) else walk.found


def _newest(names: list[str]) -> list[str]:
    newest: dict[str, int] = {}
    for name in names:
        match = _VERSIONED.fullmatch(name)
        if match and match[2] not in {"root", "snapshot"}:
            newest[match[2]] = max(newest.get(match[2], 0), int(match[1]))
    return [f"{version}.{role}.json" for role, version in newest.items()]


def _is_old(directory: Path, found: Mapping[str, bytes]) -> bool:
    name = "metadata/timestamp.json"
    try:
        return _read_file(directory, name) != found[name]
    except FileNotFoundError:
        return False


def _listed(data: bytes) -> list[tuple[str, int]]:
    found = []
    for name, row in _rows(data, "meta").items():
        version = row.get("version") if isinstance(row, dict) else None
        if isinstance(version, int) and _NAME.fullmatch(f"metadata/{version}.{name}"):
            found.append((name, version))
    return found[:MAX_ROLES]


def _stored(data: bytes) -> list[tuple[str, str]]:
    found = []
    for name, row in _rows(data, "targets").items():
        hashes = row.get("hashes") if isinstance(row, dict) else None
        digest = next(iter(hashes.values()), "") if isinstance(hashes, dict) else ""
        folder, _, base = f"targets/{name}".rpartition("/")
        stored = f"{folder}/{digest}.{base}"
        if _NAME.fullmatch(stored):
            found.append((name, stored))
    return found[:MAX_FILES]


def _rows(data: bytes, field: str) -> dict[str, Json]:
    """Return a table of the signed part of metadata, empty when it has none."""
    try:
        document = parse_strict_json(data, max_bytes=MAX_BYTES, what="metadata")
    except TrustError:
        return {}
    signed = document.get("signed") if isinstance(document, dict) else None
    rows = signed.get(field) if isinstance(signed, dict) else None
    return rows if isinstance(rows, dict) else {}


def _read_file(directory: Path, name: str) -> bytes:
    """Return one file's bytes, bounded; links are not followed.

    Raises:
        FileNotFoundError: it is not there.
        TrustError: STO-K013 when it is too large or its name is none of a release's,
            STO-K014 when it cannot be read.
    """
    _check_name(name)
    try:
        with os.fdopen(os.open(directory / name, _FLAGS), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise TrustError("STO-K014", f"{name} cannot be read") from error
    _check_size(name, data)
    return data


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts:
        raise TrustError("STO-K013", f"{name[:64]!r} is not a release file's name")


def _check_size(name: str, data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise TrustError("STO-K037", f"{name} is larger than a release file may be")


def pack_release(files: ReleaseFiles) -> bytes:
    """Return the release as one file, for workunits and for downloads."""
    rows = (
        b'"%s":"%s"' % (name.encode(), base64.b64encode(data))
        for name, data in files.files
        if travels(name)
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
        _check_name(name)
        _check_size(name, content)
        files.append((name, content))
    return ReleaseFiles(tuple(files))


RELEASE_BUILD: Final = False
"""Frozen release builds set this to True; then development roots are refused (I3)."""

DEVELOPMENT_MARK: Final = "x-stoilo-development"
"""Field of a root whose offline keys lie beside the online ones."""

REHEARSAL_MARK: Final = "x-stoilo-rehearsal"
"""Field of a root made to rehearse the ceremony."""

_MARKS: Final = frozenset({DEVELOPMENT_MARK, REHEARSAL_MARK})

PROJECT_FILE: Final = "project.json"
"""Target: origin, accepted levels and language layers."""

EPOCHS_FILE: Final = "gate/epochs.json"
"""Target of the delegated role ``gate``: the numbers of the certified epochs."""

FLOORS_FILE: Final = "executor/floors.json"
"""Target: the oldest parts that may still work; absent: any may."""

BUILDERS_FILE: Final = "builders/keys.json"
"""Target: who attests builds; absent: nobody."""

POLICIES_FILE: Final = "policy/accepted.json"
"""Target of the delegated role ``policy``: the policies in force."""

REVOCATION_FILE: Final = "revocation/denied.json"
"""Target of the delegated role whose offline key withdraws, and takes back."""

REVIEWERS_FILE: Final = "reviewers/keys.json"
"""Target of the delegated role whose offline key names the reviewers."""

POLICY_FILE: Final = "log/policy.txt"
"""Target of the log policy in force."""

HISTORY_FILE: Final = "log/history.txt"
"""Target of the log policies that ``log/policy.txt`` replaced; absent when there are none."""


def is_development_root(root: bytes) -> bool:
    """Whether root metadata carries the development mark; raises ``STO-K013``."""
    return DEVELOPMENT_MARK in _marks(root)


def is_rehearsal_root(root: bytes) -> bool:
    """Whether root metadata carries the rehearsal mark; raises ``STO-K013``."""
    return REHEARSAL_MARK in _marks(root)


def load_trust(
    files: ReleaseFiles | Path,
    root: bytes,
    now: int,
    *,
    installed: InstalledRelease,
    cache: Path | None = None,
    reference: int | None = None,
    release_build: bool = RELEASE_BUILD,
) -> TrustedRelease:
    """Verify a release up to `root` and return what it says.

    Args:
        files: the release, or the directory it lies in; hostile.
        root: the trusted root metadata.
        now: the best time known, Unix seconds.
        installed: levels and language layer of this executor's own package.
        cache: this host's own directory, outside project and slot directories, where
            the newest metadata is remembered; without it rollback between calls cannot
            be seen.
        reference: when the admission says that it was made, Unix seconds: metadata that
            travelled with a task is judged by that day, not by the day it runs on. Never
            later than `now` counts; the caller checks that the verified admission says
            the same, and judges its end and its epoch by `now`.
        release_build: can only make it stricter than `RELEASE_BUILD`.

    Raises:
        TrustError: one of docs/reference/trust.md's codes, an attack each, and the codes
            of keys and policies inside.
        InternalError: STO-X008 when the cache cannot be read or written.
    """
    strict = release_build or RELEASE_BUILD
    if strict:
        _refuse_marks(_marks(root))
    if isinstance(files, Path):
        files = read_release(files)
    at = now if reference is None else max(0, min(reference, now))
    with cache_directory(cache) as folder:
        updater = ReleaseUpdater(folder, files, root, at)
        updater.refresh()
        _check_marks(updater.marks())
        if strict:
            _refuse_marks(updater.marks())
        found = _Targets(updater.read_all(), updater.infos())
        return _collect(updater, found, installed)


@dataclass(frozen=True, slots=True)
class _Targets:
    """Verified targets: the bytes of those that travel, and what is said of all."""

    files: Mapping[str, bytes]
    infos: Mapping[str, TargetFile]

    def read(self, name: str) -> bytes:
        """Return target `name`, or raise ``STO-K014``."""
        data = self.files.get(name)
        if data is None:
            raise TrustError("STO-K014", f"the release does not name {name}")
        return data


def _collect(
    updater: ReleaseUpdater, found: _Targets, installed: InstalledRelease
) -> TrustedRelease:
    project = read_target(found.read(PROJECT_FILE), ProjectFile, PROJECT_FILE)
    denied_file = found.read(REVOCATION_FILE)
    denied = read_target(denied_file, RevocationFile, REVOCATION_FILE)
    policies = read_target(found.read(POLICIES_FILE), PolicyFile, POLICIES_FILE)
    floors = found.files.get(FLOORS_FILE, b"{}")
    builders = found.files.get(BUILDERS_FILE, b"{}")
    root, targets, timestamp = updater.versions()
    marks = updater.marks()
    return TrustedRelease(
        origin=project.origin,
        development=DEVELOPMENT_MARK in marks,
        rehearsal=REHEARSAL_MARK in marks,
        root_version=root,
        targets_version=targets,
        timestamp_version=timestamp,
        expires=updater.expiry(),
        epochs=read_epochs(found.files),
        log_policy=_log_policy(found),
        levels=_levels(project, installed),
        languages=frozenset(filter(installed.runs, project.languages)),
        installed_language=installed.language_digest,
        python=installed.python,
        policies=frozenset(policies.digests),
        denied=frozenset(denied.digests),
        revoked_epochs=frozenset(denied.epochs),
        min_epoch=denied.min_epoch,
        reviewers=_reviewers(found.read(REVIEWERS_FILE), denied),
        reviewed={
            digest: frozenset(levels) for digest, levels in policies.reviewed.items()
        },
        withdrawn_flavors=frozenset(denied.flavors),
        revocation_version=updater.role_version("revocation"),
        revocation_digest=content_digest(denied_file),
        revocation_keys=tuple(parse_public_key(key) for key in denied.keys),
        revocations_settled=denied.settled,
        parts=read_parts(found.files, found.infos),
        floors=read_target(floors, FloorsFile, FLOORS_FILE),
        builders=read_target(builders, BuilderFile, BUILDERS_FILE),
    )


def _levels(project: ProjectFile, installed: InstalledRelease) -> tuple[Level, ...]:
    rank = {
        (name, digest): place
        for name, digests in project.levels.items()
        for place, digest in enumerate(digests)
    }
    held = [one for one in installed.levels if (one.name, one.digest) in rank]
    held.sort(key=lambda one: (one.order, one.name, rank[one.name, one.digest]))
    return tuple(held)


def _reviewers(data: bytes, denied: RevocationFile) -> tuple[Reviewer, ...]:
    named = read_target(data, ReviewerFile, REVIEWERS_FILE)
    return tuple(
        Reviewer(parse_public_key(one.key), one.name, frozenset(one.accounts))
        for one in named.keys
        if one.key not in denied.digests
    )


def _log_policy(found: _Targets) -> LogPolicy:
    policy = parse_policy(found.read(POLICY_FILE))
    history = found.files.get(HISTORY_FILE)
    return policy if history is None else with_history(policy, parse_history(history))


def _marks(root: bytes) -> frozenset[str]:
    """Return the names of our own fields in root metadata; raises ``STO-K013``."""
    try:
        signed = Metadata[Root].from_bytes(root).signed
    except (exceptions.RepositoryError, ValueError) as error:
        raise TrustError("STO-K013", "the root cannot be read") from error
    return frozenset(signed.unrecognized_fields)


def _check_marks(marks: frozenset[str]) -> None:
    """Refuse a mark that this executor does not know: it may be a restriction."""
    unknown = {mark for mark in marks if mark.startswith("x-stoilo-")} - _MARKS
    if unknown:
        raise TrustError(
            "STO-K041",
            f"the root is marked {min(unknown)[:40]!r}, which means nothing here",
            hint="use a newer version",
        )


def _refuse_marks(marks: frozenset[str]) -> None:
    if DEVELOPMENT_MARK in marks:
        raise TrustError(
            "STO-K015",
            "this executor is a release build and the root is one of development",
            hint="attach to a project with a real root",
        )
    if REHEARSAL_MARK in marks:
        raise TrustError(
            "STO-K080",
            "this executor is a release build and the root is one of a rehearsal",
            hint="attach to the project itself, not to its rehearsal",
        )
