"""A gate with its log and keys in one object, honest or in a thief's hands.

Everything it makes is real (development root, statements, Merkle tree, signatures), only
nothing is durable. Tests and benchmarks change one thing at a time and see the verifier
refuse it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stoilo.audit.checkpoint import Checkpoint, render_checkpoint
from stoilo.audit.merkle import MemoryTree, inclusion_proof, leaf_hash, range_root
from stoilo.audit.note import Note, render_note, sign_note
from stoilo.audit.proof import Proof, render_proof
from stoilo.core.digests import content_digest
from stoilo.core.dsse import IN_TOTO_PAYLOAD, render_envelope, sign_envelope
from stoilo.core.ed25519 import PrivateKey
from stoilo.core.levels import Level, LevelLimits, SyscallRules
from stoilo.core.limits import RunLimits
from stoilo.core.statement import Statement, make_nonce, render_statement
from stoilo.core.types import Redundancy
from stoilo.executor.release import InstalledRelease
from stoilo.executor.verifier import TaskBundle, admission_leaf
from stoilo.signer.devroot import create_development_root
from stoilo.signer.keyfiles import read_private_key

__all__ = ["INSTALLED", "MODULE", "Admitted", "GateBench", "small_level"]

MODULE = b"def f(a):\n    return a\n"
VALIDATOR = b"def same(a, b):\n    return a == b\n"
ARGUMENTS = b"arguments"
BLOBS = (b"first blob", b"second blob")
FLAVOR = content_digest(b"a flavor manifest")
NOW = 1_800_000_000
DAY_S = 24 * 3600


def small_level(name: str, order: int) -> Level:
    """Return a level that has nothing but a place and the default limits."""
    return Level(
        name=name,
        order=order,
        summary="",
        preload=(),
        modules={},
        builtins=(),
        syscalls=SyscallRules((), (), {}),
        limits=LevelLimits({}, dataclasses.asdict(RunLimits())),
        digest=content_digest(name.encode()),
    )


INSTALLED = InstalledRelease(
    levels=(small_level("pure", 0), small_level("numeric", 1)),
    language_digest=content_digest(b"a language layer"),
)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A statement's bytes, their envelope, and their proof."""

    payload: bytes
    envelope: bytes
    proof: bytes


class GateBench:
    """Admits statements under a fresh development root in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        origin: str = "project.example/log",
        now: int = NOW,
        installed: InstalledRelease = INSTALLED,
    ) -> None:
        """Make the root, and a log of seven leaves of other work."""
        self.now = now
        self.installed = installed
        self.root = create_development_root(
            directory, origin, now, installed=installed, policies=(FLAVOR,)
        )
        self.log_key = read_private_key(directory / "online" / "log.pem")
        self.tree = MemoryTree(leaf_hash(bytes([n])) for n in range(7))

    def gate_key(self, epoch: int = 1) -> PrivateKey:
        """Return the gate's key, as a thief of the online host would have it."""
        return read_private_key(self.root.directory / "online" / f"gate-{epoch}.pem")

    def statement(self, **changes: object) -> Statement:
        """Return an honest statement with `changes`."""
        level = self.installed.levels[0]
        honest = Statement(
            origin=self.root.origin,
            nonce=make_nonce(),
            task_id="task-1",
            attempt=1,
            entry="f",
            map_items=0,
            task_module=content_digest(MODULE),
            validator_module=content_digest(VALIDATOR),
            arguments=content_digest(ARGUMENTS),
            blobs=tuple(content_digest(blob) for blob in BLOBS),
            flavor=FLAVOR,
            level=level.name,
            level_digest=level.digest,
            policy_digest=FLAVOR,
            language_digest=self.installed.language_digest,
            python="3.11",
            codec=1,
            limits=RunLimits(),
            redundancy=Redundancy(),
            seed=make_nonce(),
            submitter=content_digest(b"a salted account"),
            admitted_at=self.now,
            not_after=self.now + DAY_S,
            epoch=1,
        )
        return msgspec.structs.replace(honest, **changes)

    def admit(
        self, statement: Statement, *, keys: tuple[PrivateKey, ...] | None = None
    ) -> Admitted:
        """Log and sign `statement`; by `keys` instead of the gate's, if given."""
        payload = render_statement(statement)
        proof = self.log(admission_leaf(statement, payload))
        return Admitted(payload, self.sign(payload, keys), proof)

    def sign(self, payload: bytes, keys: tuple[PrivateKey, ...] | None = None) -> bytes:
        """Return the envelope over `payload`, whatever it says."""
        signers = [("", key) for key in keys or (self.gate_key(),)]
        return render_envelope(sign_envelope(payload, signers, IN_TOTO_PAYLOAD))

    def log(self, leaf: bytes) -> bytes:
        """Append a leaf and return its proof under a new checkpoint."""
        index = self.tree.append(leaf_hash(leaf))
        path = inclusion_proof(index, self.tree.size, self.tree.node)
        return render_proof(Proof(index, tuple(path), self.checkpoint()))

    def checkpoint_body(self) -> bytes:
        """Return the present checkpoint, unsigned."""
        size = self.tree.size
        root = range_root(0, size, self.tree.node)
        return render_checkpoint(Checkpoint(self.root.origin, size, root))

    def checkpoint(self) -> bytes:
        """Return the present checkpoint, signed by the log's key."""
        body = self.checkpoint_body()
        signature = sign_note(body, self.root.origin, self.log_key.key)
        return render_note(Note(body, (signature,)))

    def bundle(self, admitted: Admitted, **changes: object) -> TaskBundle:
        """Return the workunit of `admitted`, with `changes`."""
        honest = TaskBundle(
            envelope=admitted.envelope,
            proof=admitted.proof,
            task_id="task-1",
            attempt=1,
            app_level="pure",
            flavor=FLAVOR,
            task_module=MODULE,
            arguments=ARGUMENTS,
            blobs=BLOBS,
        )
        return dataclasses.replace(honest, **changes)  # type: ignore[arg-type]  # named by tests
