"""What a thief publishes with keys that he found: a copy of the release, changed and signed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from securesystemslib.signer import CryptoSigner, Signer
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    T,
    TargetFile,
    Targets,
    Timestamp,
)

from stoilo.core.digests import content_digest
from stoilo.core.signatures import PrivateKey
from stoilo.signer.repository import newest
from tests.drills.release_scene import ReleaseScene

__all__ = ["Forger"]

FLOORS: Final = b'{"verifier":1}'


class Forger:
    """A thief with a server of his own that shows hosts what he likes.

    Args:
        scene: the project; each forgery starts from what it has published by then.
    """

    def __init__(self, scene: ReleaseScene) -> None:
        self._scene = scene

    def root(self, stolen: Sequence[Signer]) -> Path:
        """Return a release under a root of his own making, signed by stolen root keys.

        That root names one key of his for every role, so he signs the rest himself.
        """
        place = self._copy()
        own = CryptoSigner(PrivateKey.generate().key)
        root = _newest(place, "root", Root)
        for name, role in root.roles.items():
            for keyid in list(role.keyids):
                root.revoke_key(keyid, name)
            root.add_key(own.public_key, name)
            role.threshold = 1
        _write(place, "root", root, [*stolen, own])
        _write(place, "targets", _newest(place, "targets", Targets), [own])
        return _point(place, [own])

    def targets(self, stolen: Sequence[Signer], online: Sequence[Signer]) -> Path:
        """Return a release with targets of his own, signed by stolen keys."""
        place = self._copy()
        targets = _newest(place, "targets", Targets)
        name = "executor/floors.json"
        targets.targets[name] = TargetFile.from_data(name, FLOORS, ["sha256"])
        file = place / "targets" / "executor" / f"{content_digest(FLOORS)}.floors.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(FLOORS)
        _write(place, "targets", targets, stolen)
        return _point(place, online)

    def jump(self, online: Sequence[Signer], versions: int) -> Path:
        """Return the release with snapshot and timestamp of versions far ahead."""
        return _point(self._copy(), online, versions)

    def _copy(self) -> Path:
        """Return a copy of the release in a place of its own."""
        place = tempfile.mkdtemp(prefix="thief-", dir=self._scene.folder)
        shutil.copytree(self._scene.directory, place, dirs_exist_ok=True)
        return Path(place)


def _newest(place: Path, name: str, kind: type[T]) -> T:
    """Return the newest metadata of a role, to be changed."""
    metadata = newest(place, name, kind)
    if metadata is None:
        raise FileNotFoundError(name)
    return metadata.signed


def _write(place: Path, name: str, signed: T, signers: Sequence[Signer]) -> None:
    """Sign the next version of metadata, with whatever keys there are, and store it."""
    signed.version += 1
    metadata = Metadata(signed)
    for signer in signers:
        metadata.sign(signer, append=True)
    base = "timestamp" if name == "timestamp" else f"{signed.version}.{name}"
    (place / "metadata" / f"{base}.json").write_bytes(metadata.to_bytes())


def _point(place: Path, online: Sequence[Signer], versions: int = 0) -> Path:
    """Sign a snapshot of the newest targets and a timestamp of it; returns `place`."""
    snapshot = _newest(place, "snapshot", Snapshot)
    snapshot.version += versions
    targets = _newest(place, "targets", Targets).version
    snapshot.meta["targets.json"] = MetaFile(targets)
    _write(place, "snapshot", snapshot, online)
    file = place / "metadata" / "timestamp.json"
    timestamp = Metadata[Timestamp].from_bytes(file.read_bytes()).signed
    timestamp.version += versions
    timestamp.snapshot_meta = MetaFile(snapshot.version)
    _write(place, "timestamp", timestamp, online)
    return place
