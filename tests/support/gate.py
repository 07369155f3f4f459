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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from stoilo.audit.format.merkle import (
    Checkpoint,
    inclusion_proof,
    leaf_hash,
    range_root,
    render_checkpoint,
)
from stoilo.audit.format.note import (
    KeyType,
    Note,
    cosign_note,
    parse_note,
    private_vkey,
    render_note,
    sign_note,
)
from stoilo.audit.format.policy import LogPolicy, Witness
from stoilo.audit.format.proof import Proof, parse_proof, render_proof
from stoilo.audit.witness.client import NO_WITNESSES
from stoilo.core.digests import content_digest
from stoilo.core.levels import Level, LevelLimits, SyscallRules
from stoilo.core.signatures import (
    IN_TOTO_PAYLOAD,
    PrivateKey,
    render_envelope,
    sign_envelope,
)
from stoilo.core.statement import (
    RECORD_PAYLOAD,
    RevocationStatement,
    Statement,
    join_revocations,
    make_nonce,
    render_statement,
)
from stoilo.core.types import Redundancy, RunLimits
from stoilo.executor.verifier.admission import admission_leaf, verify_work
from stoilo.executor.verifier.statements import revocation_leaf
from stoilo.executor.verifier.targets import GateEpoch, ReviewerKey, TrustedRelease
from stoilo.executor.verifier.trust import InstalledRelease
from stoilo.executor.verifier.workunit import (
    HostState,
    Source,
    VerifiedTask,
    Work,
)
from stoilo.signer.development.changes import (
    list_reviewers,
    publish_reviewers,
    with_reviewer,
)
from stoilo.signer.development.root import (
    ONLINE_REVOCATION_KEY,
    DevelopmentRoot,
    create_development_root,
)
from stoilo.signer.key_files import ensure_key, read_private_key
from tests.support.memory_tree import MemoryTree

__all__ = ["INSTALLED", "MODULE", "Admitted", "GateBench", "small_level"]

MODULE = b"def f(a):\n    return a\n"
VALIDATOR = b"def same(a, b):\n    return a == b\n"
ARGUMENTS = b"arguments"
BLOBS = (b"first blob", b"second blob")
FLAVOR = content_digest(b"a flavor manifest")
OWN = content_digest(b"the reviewer's own account")
NOW = 1_800_000_000
DAY_S = 24 * 3600
WITNESS = "witness.example/w"


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


def _one_witness(key: Ed25519PrivateKey) -> LogPolicy:
    """Return the policy that demands this witness."""
    vkey = private_vkey(WITNESS, KeyType.COSIGNATURE, key)
    return LogPolicy((), (Witness("w", vkey),), (), "w")


@dataclass(frozen=True)
class TaskBundle:
    """A workunit's parts by name, for tests that change one of them."""

    envelope: bytes
    proof: bytes
    task_id: str
    attempt: int
    app_level: str
    task_module: Source
    arguments: Source
    blobs: tuple[Source, ...] = ()
    revocations: bytes = b""

    def work(self) -> Work:
        """Return it as it is downloaded."""
        files = {
            "admission": self.envelope,
            "proof": self.proof,
            "task_module": self.task_module,
            "arguments": self.arguments,
            "revocations": self.revocations,
            **{f"blob_{index:03d}": blob for index, blob in enumerate(self.blobs)},
        }
        name = f"{self.task_id}_{self.attempt}"
        return Work(f"{name}_0", name, self.app_level, tuple(files.items()))


def verify_bundle(
    bundle: TaskBundle, trust: TrustedRelease, host: HostState, now: int
) -> VerifiedTask:
    """Verify a workunit as a volunteer does."""
    return verify_work(bundle.work(), trust, host, now)


def host_state(**changes: object) -> HostState:
    """Return a host that holds the flavor of honest statements, with `changes`."""
    return HostState(**{"flavors": frozenset({FLAVOR})} | changes)  # type: ignore[arg-type]  # named by tests


def epoch_at(trust: TrustedRelease, now: int, lifetime_s: int) -> GateEpoch | None:
    """Return the newest epoch that holds an admission from `now` for `lifetime_s`."""
    usable = (
        epoch
        for epoch in trust.epochs
        if epoch.holds(now, now + lifetime_s)
        and epoch.number >= trust.min_epoch
        and epoch.number not in trust.revoked_epochs
    )
    return max(usable, key=lambda epoch: epoch.number, default=None)


class GateBench:
    """Admits statements under a fresh development root in `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        origin: str = "project.example/log",
        now: int = NOW,
        installed: InstalledRelease = INSTALLED,
        reviewed: tuple[str, ...] = (),
        witnessed: bool = False,
    ) -> None:
        """Make the root with one reviewer, and a log of six leaves and a statement.

        `reviewed` names the levels that need a review under the policy. Where
        `witnessed`, the log policy demands a cosignature, and checkpoints carry one of
        the time `witness_time`.
        """
        self.now = now
        self.witness_time = now
        self.witness_key = PrivateKey.generate().key
        self.witnesses = _one_witness(self.witness_key) if witnessed else NO_WITNESSES
        self.installed = installed
        self.reviewed = reviewed
        self.root = self._make_root(directory, origin)
        self.reviewer_key = ensure_key(directory / "reviewer.pem")
        public = self.reviewer_key.public.raw.hex()
        if public not in {one.key for one in list_reviewers(directory)}:
            publish_reviewers(
                directory,
                lambda named: with_reviewer(
                    named, ReviewerKey(public, "a reviewer", (OWN,))
                ),
                now,
            )
            self.root = self._make_root(directory, origin)
        self.log_key = read_private_key(directory / "online" / "log.pem")
        self.tree = MemoryTree(leaf_hash(bytes([n])) for n in range(6))
        self.revocations = self.revoke_online()

    def _make_root(self, directory: Path, origin: str) -> DevelopmentRoot:
        return create_development_root(
            directory,
            origin,
            self.now,
            installed=self.installed,
            policies=(FLAVOR,),
            reviewed={FLAVOR: self.reviewed},
            witnesses=self.witnesses,
        )

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

    def revocation(self, **changes: object) -> RevocationStatement:
        """Return an honest first statement that withdraws nothing, with `changes`."""
        trust = self.root.trust
        honest = RevocationStatement(
            origin=self.root.origin,
            time=self.now,
            epoch=1,
            issuer="online",
            sequence=1,
            base=trust.revocation_version,
            offline=trust.revocation_digest,
            epochs=(),
            min_epoch=1,
            digests=(),
            flavors=(),
        )
        return msgspec.structs.replace(honest, **changes)

    def revoke_online(
        self, *, keys: tuple[PrivateKey, ...] | None = None, **changes: object
    ) -> bytes:
        """Return a workunit's file of revocations, logged and signed like the real one.

        By `keys` instead of the online key, if given.
        """
        payload = msgspec.json.encode(self.revocation(**changes))
        online = self.root.directory / "online" / ONLINE_REVOCATION_KEY
        signers = [("", key) for key in keys or (read_private_key(online),)]
        envelope = sign_envelope(payload, signers, RECORD_PAYLOAD)
        proof = self.log(revocation_leaf(payload))
        return join_revocations(render_envelope(envelope), proof)

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
        """Return the present checkpoint, signed by the log's key and any witness."""
        body = self.checkpoint_body()
        signatures = [sign_note(body, self.root.origin, self.log_key.key)]
        if self.witnesses.witnesses:
            signatures.append(
                cosign_note(body, WITNESS, self.witness_key, self.witness_time)
            )
        return render_note(Note(body, tuple(signatures)))

    def strip_cosignatures(self, admitted: Admitted) -> Admitted:
        """Return the admission as a server would show it that hides from witnesses."""
        proof = parse_proof(admitted.proof)
        note = parse_note(proof.checkpoint)
        alone = render_note(Note(note.text, note.signatures[:1]))
        bare = dataclasses.replace(proof, checkpoint=alone)
        return dataclasses.replace(admitted, proof=render_proof(bare))

    def bundle(self, admitted: Admitted, **changes: object) -> TaskBundle:
        """Return the workunit of `admitted`, with `changes`."""
        honest = TaskBundle(
            envelope=admitted.envelope,
            proof=admitted.proof,
            task_id="task-1",
            attempt=1,
            app_level="pure",
            task_module=MODULE,
            arguments=ARGUMENTS,
            blobs=BLOBS,
            revocations=self.revocations,
        )
        return dataclasses.replace(honest, **changes)  # type: ignore[arg-type]  # named by tests
