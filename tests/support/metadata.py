"""A release in memory with every key at hand: honest ones, and whatever a thief would sign.

For tests and drills of the executor's side: nothing here refuses anything. Versions rise
with every signature; each `publish_…` takes a change to make to the metadata first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    T,
    TargetFile,
    Targets,
    Timestamp,
)

from stoilo.audit.format.note import KeyType, private_vkey, render_vkey
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.trust import InstalledRelease, ReleaseFiles, load_trust

__all__ = ["DELEGATED", "NOTHING_INSTALLED", "ORIGIN", "MetadataBench", "unchanged"]

ORIGIN: Final = "project.example/log"
DELEGATED: Final = ("gate", "revocation", "policy", "reviewers")
NOTHING_INSTALLED: Final = InstalledRelease(levels=(), language_digest="")
_LIFE: Final = {"root": 365, "timestamp": 7, "snapshot": 30}
_COUNTS: Final = {"root": 3, "targets": 3}


def unchanged(_: Signed) -> None:
    """Change nothing: metadata is signed again with the next version."""


class MetadataBench:
    """One release; its first root is what hosts trust.

    Args:
        now: Unix seconds; what is signed starts to live then. May be changed.
        threshold: of root and targets, which have three keys each.
    """

    def __init__(self, now: int, *, threshold: int = 2) -> None:
        self.now = now
        self.files: dict[str, bytes] = {}
        self.keys = {
            role: self.make_keys(_COUNTS.get(role, 1))
            for role in ("root", "targets", "snapshot", "timestamp", *DELEGATED)
        }
        self.root = Root(consistent_snapshot=True)
        self.root.version = 0
        for role in ("root", "targets", "snapshot", "timestamp"):
            self.name_keys(self.root, role, threshold if role in _COUNTS else 1)
        self.roles: dict[str, Targets] = {name: Targets() for name in DELEGATED}
        self.roles["targets"] = Targets(delegations=self._delegations())
        for targets in self.roles.values():
            targets.version = 0
        self.snapshot, self.timestamp = Snapshot(meta={}), Timestamp()
        self.snapshot.version = self.timestamp.version = 0
        self._root_keys: tuple[PrivateKey, ...] = ()
        self.publish_root()
        self.trusted = self.files["metadata/1.root.json"]
        self._put_honest_files()
        for name in (*DELEGATED, "targets"):
            self.publish_targets(name)
        self.publish()

    @staticmethod
    def make_keys(count: int) -> tuple[PrivateKey, ...]:
        """Return fresh keys."""
        return tuple(PrivateKey.generate() for _ in range(count))

    def name_keys(self, root: Root, role: str, threshold: int) -> None:
        """Let `root` name exactly `keys` of `role`."""
        for keyid in list(root.roles[role].keyids):
            root.revoke_key(keyid, role)
        for key in self.keys[role]:
            root.add_key(CryptoSigner(key.key).public_key, role)
        root.roles[role].threshold = threshold

    def put(self, path: str, data: bytes, *, role: str = "") -> None:
        """Name target `path` by its role (see `publish_targets`) and store its bytes."""
        folder, _, base = path.rpartition("/")
        owner = role or (folder if folder in DELEGATED else "targets")
        self.roles[owner].targets[path] = TargetFile.from_data(path, data, ["sha256"])
        place = f"targets/{folder}/" if folder else "targets/"
        self.files[f"{place}{content_digest(data)}.{base}"] = data

    def publish_root(
        self,
        change: Callable[[Root], None] = unchanged,
        *,
        signers: Iterable[PrivateKey] | None = None,
        name: str = "",
    ) -> bytes:
        """Publish the next root, signed by the old and the new keys unless told other."""
        self._renew(self.root, "root")
        change(self.root)
        own = self.keys["root"]
        keys = (*self._root_keys, *own) if signers is None else tuple(signers)
        data = self.sign(self.root, keys)
        self.files[f"metadata/{name or f'{self.root.version}.root.json'}"] = data
        self._root_keys = own
        return data

    def publish_targets(
        self,
        name: str = "targets",
        change: Callable[[Targets], None] = unchanged,
        *,
        signers: Iterable[PrivateKey] | None = None,
    ) -> bytes:
        """Publish the next version of targets or of a delegated role."""
        role = self.roles[name]
        self._renew(role, "targets")
        change(role)
        data = self.sign(role, self.keys[name] if signers is None else signers)
        self.files[f"metadata/{role.version}.{name}.json"] = data
        self.snapshot.meta[f"{name}.json"] = _describe(role.version, data)
        return data

    def publish_snapshot(
        self,
        change: Callable[[Snapshot], None] = unchanged,
        *,
        signers: Iterable[PrivateKey] | None = None,
    ) -> bytes:
        """Publish the next snapshot, of the newest roles."""
        self._renew(self.snapshot, "snapshot")
        change(self.snapshot)
        keys = self.keys["snapshot"] if signers is None else signers
        data = self.sign(self.snapshot, keys)
        self.files[f"metadata/{self.snapshot.version}.snapshot.json"] = data
        self.timestamp.snapshot_meta = _describe(self.snapshot.version, data)
        return data

    def publish_timestamp(
        self,
        change: Callable[[Timestamp], None] = unchanged,
        *,
        signers: Iterable[PrivateKey] | None = None,
    ) -> bytes:
        """Publish the next timestamp, of the newest snapshot."""
        self._renew(self.timestamp, "timestamp")
        change(self.timestamp)
        keys = self.keys["timestamp"] if signers is None else signers
        data = self.sign(self.timestamp, keys)
        self.files["metadata/timestamp.json"] = data
        return data

    def publish(self) -> None:
        """Publish snapshot and timestamp of the newest roles."""
        self.publish_snapshot()
        self.publish_timestamp()

    def sign(self, signed: T, keys: Iterable[PrivateKey]) -> bytes:
        """Return metadata signed by `keys`, whoever they belong to."""
        metadata = Metadata(signed)
        for key in keys:
            metadata.sign(CryptoSigner(key.key), append=True)
        return metadata.to_bytes()

    def release(self) -> ReleaseFiles:
        """Return the files as they are now."""
        return ReleaseFiles(tuple(self.files.items()))

    def load(
        self,
        cache: Path | None = None,
        *,
        late_s: int = 0,
        reference: int | None = None,
        release_build: bool = False,
    ) -> str:
        """Return the origin that a host learns, or the code of its refusal.

        Args:
            cache: the host's memory.
            late_s: how long after `now` the host looks, s.
            reference: see `load_trust`.
            release_build: as a frozen executor would.
        """
        try:
            trusted = load_trust(
                self.release(),
                self.trusted,
                self.now + late_s,
                installed=NOTHING_INSTALLED,
                cache=cache,
                reference=reference,
                release_build=release_build,
            )
        except TrustError as error:
            return error.code
        return trusted.origin

    def _renew(self, signed: Signed, role: str) -> None:
        """Give metadata its next version and end."""
        signed.version += 1
        days = timedelta(days=_LIFE.get(role, 180))
        signed.expires = datetime.fromtimestamp(self.now, UTC) + days

    def _delegations(self) -> Delegations:
        """Return the roles of their own folders."""
        found = Delegations({}, {})
        assert found.roles is not None
        for name in DELEGATED:
            public = [CryptoSigner(key.key).public_key for key in self.keys[name]]
            found.keys |= {key.keyid: key for key in public}
            found.roles[name] = DelegatedRole(
                name,
                keyids=[key.keyid for key in public],
                threshold=1,
                terminating=True,
                paths=[f"{name}/*"],
            )
        return found

    def _put_honest_files(self) -> None:
        """Name the targets that a release must have."""
        vkey = render_vkey(
            private_vkey(ORIGIN, KeyType.ED25519, PrivateKey.generate().key)
        )
        project = {"origin": ORIGIN, "levels": {}, "languages": []}
        documents: Mapping[str, object] = {
            "project.json": project,
            "gate/epochs.json": {"epochs": []},
            "revocation/denied.json": {},
            "policy/accepted.json": {},
            "reviewers/keys.json": {},
        }
        for path, document in documents.items():
            self.put(path, json.dumps(document).encode())
        self.put("log/policy.txt", f"log {vkey}\nquorum none\n".encode())


def _describe(version: int, data: bytes) -> MetaFile:
    """Return what is said of metadata by the metadata above it."""
    return MetaFile(version, len(data), {"sha256": str(content_digest(data))})
