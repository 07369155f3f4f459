"""Somebody who has copied every online key, and what he makes with them."""

from __future__ import annotations

import time
from pathlib import Path

from stoilo.audit.format.merkle import (
    Checkpoint,
    inclusion_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.note import Note, render_note, sign_note
from stoilo.audit.format.proof import Proof, render_proof
from stoilo.audit.format.tiles import ENTRIES, TILE_WIDTH, decode_bundle, tile_at
from stoilo.audit.log.sequencer import Sequencer
from stoilo.audit.read.source import open_source
from stoilo.core.codec import skeleton
from stoilo.core.digests import content_digest
from stoilo.core.signatures import (
    IN_TOTO_PAYLOAD,
    load_private_key,
    render_envelope,
    sign_envelope,
)
from stoilo.core.statement import (
    CODEC_VERSION,
    Statement,
    make_nonce,
    parse_statement,
    render_statement,
)
from stoilo.core.types import Redundancy
from stoilo.executor.verifier.admission import admission_leaf
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import installed_release, load_trust
from stoilo.flavors.manifest import find_flavor
from stoilo.signer.release_pack import read_release
from tests.drills.project import DrillProject, Packet
from tests.support.memory_tree import MemoryTree

__all__ = ["Thief", "read_entries"]

MODULE = b"def task(kwargs):\n    return 'the thief was here'\n"
DAY_S = 24 * 3600
PUBLISH_S = 30.0


def read_entries(log: Path) -> list[bytes]:
    """Return every entry that a published log shows."""
    source = open_source(log)
    size = DrillProject(log.parent.parent).checkpoint().size
    entries: list[bytes] = []
    for number in range(-(-size // TILE_WIDTH)):
        tile = tile_at(ENTRIES, number, size)
        entries += decode_bundle(source.tile(tile) or b"", tile.width)
    return entries


class Thief:
    """He has the gate's and the log's keys, and a copy of the release."""

    def __init__(self, project: DrillProject) -> None:
        """Copy what lies on the online host."""
        online = project.data / "keys" / "online"
        self._keys = {path.name: path.read_bytes() for path in online.glob("*.pem")}
        self._project = project
        self.release = project.release()
        self.trust = _trust(project)

    def statement(self, name: str, epoch: int = 1, admitted_at: int = 0) -> bytes:
        """Return an admission of his own program, under the level that is open."""
        (level,) = (one for one in self.trust.levels if one.name == "pure")
        now = admitted_at or int(time.time())
        arguments = skeleton.encode({})
        forged = Statement(
            origin=self.trust.origin,
            nonce=make_nonce(),
            task_id=name,
            attempt=1,
            entry="task",
            map_items=0,
            task_module=content_digest(MODULE),
            validator_module=content_digest(b""),
            arguments=content_digest(arguments),
            blobs=(),
            flavor=find_flavor("pure").digest,
            level=level.name,
            level_digest=level.digest,
            policy_digest=min(self.trust.policies),
            language_digest=self.trust.installed_language,
            python=self.trust.python,
            codec=CODEC_VERSION,
            limits=level.default_limits(),
            redundancy=Redundancy(),
            seed=make_nonce(),
            submitter=content_digest(b"nobody"),
            admitted_at=now,
            not_after=now + 2 * DAY_S,
            epoch=epoch,
        )
        return render_statement(forged)

    def packet(self, payload: bytes, proof: bytes, revocations: bytes) -> Packet:
        """Return the workunit of a forged admission, signed with the stolen gate key."""
        statement = parse_statement(payload)
        key = load_private_key(self._keys[f"gate-{statement.epoch}.pem"])
        envelope = sign_envelope(payload, [("", key)], IN_TOTO_PAYLOAD)
        return Packet(
            task_id=statement.task_id,
            envelope=render_envelope(envelope),
            proof=proof,
            module=MODULE,
            arguments=skeleton.encode({}),
            release=self.release,
            revocations=revocations,
        )

    def log(self, *payloads: bytes) -> list[bytes]:
        """Log forged admissions on the resting server's own disk; returns their proofs."""
        data, origin = self._project.data, self.trust.origin
        leaves = [admission_leaf(parse_statement(one), one) for one in payloads]
        with Sequencer.open(data, origin, self.sign_checkpoint) as log:
            places = log.append_many(leaves)
            log.wait_published(max(places), timeout=PUBLISH_S)
            return [log.proof(place) for place in places]

    def sign_checkpoint(self, body: bytes) -> bytes:
        """Return a note signed with the stolen log key, whatever the body says."""
        key = load_private_key(self._keys["log.pem"])
        signature = sign_note(body, self.trust.origin, key.key)
        return render_note(Note(body, (signature,)))

    def fork(self, entries: list[bytes], payload: bytes) -> tuple[bytes, bytes]:
        """Return note and proof of a private log: `entries` and his own leaf after them."""
        tree = MemoryTree(leaf_hash(entry) for entry in entries)
        leaf = admission_leaf(parse_statement(payload), payload)
        index = tree.append(leaf_hash(leaf))
        root = range_root(0, tree.size, tree.node)
        body = render_checkpoint(Checkpoint(self.trust.origin, tree.size, root))
        note = self.sign_checkpoint(body)
        path = inclusion_proof(index, tree.size, tree.node)
        return note, render_proof(Proof(index, tuple(path), note))


def _trust(project: DrillProject) -> TrustedRelease:
    """Return the release as any volunteer verifies it."""
    keys = project.data / "keys"
    return load_trust(
        read_release(keys),
        (keys / "root.json").read_bytes(),
        int(time.time()),
        installed=installed_release(),
    )
