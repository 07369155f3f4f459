"""What travels of a release's directory, as files and as the one pack of every workunit."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.trust import (
    MAX_BYTES,
    MAX_FILES,
    ReleaseFiles,
    check_file,
    travels,
)

_READ_AGAIN: Final = 5
_TIMESTAMP: Final = "metadata/timestamp.json"
_VERSIONED = re.compile(r"([0-9]{1,10})\.([a-z]{1,32})\.json")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_release(directory: Path) -> ReleaseFiles:
    """Read what travels of the release in `directory`, also while it is published.

    These are every version of the root, what the timestamp leads to, and the newest of
    each role, which a ceremony may have published before the timestamp names it. Older
    ones and their files stay in the directory and are left out. Nothing is verified
    here: what cannot be followed is left for `load_trust` to name.

    Raises:
        TrustError: STO-K013 past the bounds, when a file cannot be read.
    """
    for _ in range(_READ_AGAIN):
        walk = _Walk(directory)
        if walk.follow():
            break
    else:
        raise TrustError("STO-K013", "the release changed while it was read")
    if len(walk.found) > MAX_FILES:
        raise TrustError("STO-K013", f"a release has at most {MAX_FILES} files")
    return ReleaseFiles(tuple(walk.found.items()))


def marks_of(root: bytes) -> frozenset[str]:
    """Return the names of our own fields in root metadata; raises ``STO-K013``."""
    signed = _signed(root)
    if not isinstance(signed, Root):
        raise TrustError("STO-K013", "the root cannot be read")
    return frozenset(signed.unrecognized_fields)


def pack_release(files: ReleaseFiles) -> bytes:
    """Return the release as one file, for workunits and for downloads."""
    rows = (
        b'"%s":"%s"' % (name.encode(), base64.b64encode(data))
        for name, data in files.files
        if travels(name)
    )
    return b"{" + b",".join(rows) + b"}\n"


class _Walk:
    """Reads files of a release one by one, as each leads to the next."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.found: dict[str, bytes] = {}

    def follow(self) -> bool:
        """Read all that travels; False when the snapshot was replaced meanwhile."""
        names = [path.name for path in (self._directory / "metadata").glob("*.json")]
        timestamp = self._take(_TIMESTAMP)
        for name in names:
            if name.endswith(".root.json"):
                self._take(f"metadata/{name}")
        snapshots = [f"metadata/{name}" for name in _named(timestamp)]
        for snapshot in snapshots:
            for role in _named(self._take(snapshot)):
                self._take_role(role)
        for role in _newest(names):
            self._take_role(role)
        lost = any(snapshot not in self.found for snapshot in snapshots)
        return not lost or self._read(_TIMESTAMP) == timestamp

    def _take(self, name: str) -> bytes:
        """Read one file; an absent one is empty, and left to `load_trust`."""
        if data := self._read(name):
            self.found[name] = data
        return data

    def _take_role(self, name: str) -> None:
        """Read a targets role and what travels of its targets."""
        for target in _stored(self._take(f"metadata/{name}")):
            self._take(target)

    def _read(self, name: str) -> bytes:
        """Return one file's bytes, bounded, empty without it; links are not followed."""
        try:
            descriptor = os.open(self._directory / name, _FLAGS)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise TrustError("STO-K013", f"{name} cannot be read") from error
        check_file(name, data)
        return data


def _newest(names: list[str]) -> list[str]:
    newest: dict[str, int] = {}
    for name in names:
        match = _VERSIONED.fullmatch(name)
        if match and match[2] not in {"root", "snapshot"}:
            newest[match[2]] = max(newest.get(match[2], 0), int(match[1]))
    return [f"{version}.{role}.json" for role, version in newest.items()]


def _named(data: bytes) -> list[str]:
    """Return the files that a timestamp or snapshot names; none where it is neither."""
    match _signed(data):
        case Timestamp() as timestamp:
            return [f"{timestamp.snapshot_meta.version}.snapshot.json"]
        case Snapshot() as snapshot:
            rows = (f"{row.version}.{name}" for name, row in snapshot.meta.items())
            return [name for name in rows if _VERSIONED.fullmatch(name)]
        case _:
            return []


def _stored(data: bytes) -> Iterator[str]:
    """Yield where the targets of a role lie that travel."""
    signed = _signed(data)
    for name, row in signed.targets.items() if isinstance(signed, Targets) else ():
        folder, _, base = f"targets/{name}".rpartition("/")
        stored = f"{folder}/{next(iter(row.hashes.values()), '')}.{base}"
        with suppress(TrustError):  # no release's name: `load_trust` names the fault
            check_file(stored, b"")
            if travels(name):
                yield stored


def _signed(data: bytes) -> object:
    """Return what metadata says, None where it cannot be read."""
    try:
        return Metadata.from_bytes(data).signed if data else None
    except (RepositoryError, ValueError, RecursionError):
        return None
