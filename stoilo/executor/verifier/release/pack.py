"""A release's files as they travel: read from a directory, packed into one file, parsed.

Trust: every file is hostile until `stoilo.executor.verifier.release.trust` has verified it.
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

from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.strict_json import Json, parse_strict_json

MAX_BYTES = BOUNDS.metadata_bytes
MAX_FILES = 512
MAX_ROLES = 32
READ_AGAIN = 5
_VERSIONED = re.compile(r"([0-9]{1,10})\.([a-z]{1,32})\.json")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_PACK_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"(metadata|targets)(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){1,3}")


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """A release's public files, hostile: ``metadata/…`` and ``targets/…`` by name."""

    files: tuple[tuple[str, bytes], ...]

    def get(self, name: str) -> bytes | None:
        """Return the bytes of file `name`."""
        return next((data for known, data in self.files if known == name), None)


def travels(name: str) -> bool:
    """Whether release file or target `name` travels with every workunit.

    Metadata and small records do; launchers, archives, their manifests and their bills
    of materials are fetched by those who need them.
    """
    return name.endswith((".json", ".txt", ".toml")) and not name.endswith(".sbom.json")


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
    """Return the newest version of each role, published with or without a timestamp."""
    newest: dict[str, int] = {}
    for name in names:
        match = _VERSIONED.fullmatch(name)
        if match and match[2] not in {"root", "snapshot"}:
            newest[match[2]] = max(newest.get(match[2], 0), int(match[1]))
    return [f"{version}.{role}.json" for role, version in newest.items()]


def _is_old(directory: Path, found: Mapping[str, bytes]) -> bool:
    """Whether the timestamp that was read is no longer the one published."""
    name = "metadata/timestamp.json"
    try:
        return _read_file(directory, name) != found[name]
    except FileNotFoundError:
        return False


def _listed(data: bytes) -> list[tuple[str, int]]:
    """Return names and versions of the files that a timestamp or snapshot names."""
    found = []
    for name, row in _rows(data, "meta").items():
        version = row.get("version") if isinstance(row, dict) else None
        if isinstance(version, int) and _NAME.fullmatch(f"metadata/{version}.{name}"):
            found.append((name, version))
    return found[:MAX_ROLES]


def _stored(data: bytes) -> list[tuple[str, str]]:
    """Return target names and where their files lie, of a targets role."""
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
    """Refuse names that are not a release's."""
    if not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts:
        raise TrustError("STO-K013", f"{name[:64]!r} is not a release file's name")


def _check_size(name: str, data: bytes) -> None:
    """Refuse files past the bound."""
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
