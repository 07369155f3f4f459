"""What the verifier takes and gives: a workunit as it came, this host, a verified task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stoilo.audit.format.proof import ProvenLeaf
from stoilo.core.digests import Digest
from stoilo.core.levels import Level
from stoilo.core.limits import RunLimits
from stoilo.core.statement import Statement
from stoilo.executor.inputs import Source
from stoilo.executor.release import GateEpoch
from stoilo.executor.revocation import SeenRevocations

__all__ = [
    "COMPILED_FLOORS",
    "Floors",
    "HostState",
    "TaskBundle",
    "VerifiedAdmission",
    "VerifiedTask",
]


@dataclass(frozen=True, slots=True)
class TaskBundle:
    """One workunit as it arrived; everything here is hostile.

    Attributes:
        envelope: the admission, DSSE JSON.
        proof: the log proof, tlog-proof text.
        task_id: the task that the workunit claims to be.
        attempt: the attempt that the workunit claims to be.
        app_level: level of the BOINC app under which it came.
        flavor: id (SHA-256 of the manifest's bytes) of the runtime that would run it;
            empty when any of `HostState.flavors` could.
        task_module: the source.
        arguments: the encoded arguments.
        blobs: in the workunit's order.
        revocations: the project's newest revocation statement, with its log proof.
    """

    envelope: bytes
    proof: bytes
    task_id: str
    attempt: int
    app_level: str
    flavor: str
    task_module: Source
    arguments: Source
    blobs: tuple[Source, ...] = ()
    revocations: bytes = b""


@dataclass(frozen=True, slots=True)
class Floors:
    """Lowest versions this host accepts; raised by releases, never by a server.

    Attributes:
        root: TUF root version.
        targets: TUF targets version.
        epoch: gate epoch.
        log_size: leaves that the log had when this executor was released.
        verifier: serial of a verifier that may do any work.
        serials: other part → lowest serial that may run.
        revocation: version of the offline revocation role.
    """

    root: int = 1
    targets: int = 1
    epoch: int = 1
    log_size: int = 0
    verifier: int = 0
    serials: Mapping[str, int] = field(default_factory=dict)
    revocation: int = 0


COMPILED_FLOORS: Final = Floors()
"""What this release was built with; frozen builds set the versions of their day."""


@dataclass(frozen=True, slots=True)
class HostState:
    """What this volunteer allows (see `stoilo.executor.optin`), and the floors.

    Attributes:
        max_level: highest level allowed, by name.
        require_review: only tasks that a reviewer signed.
        require_public_source: only tasks whose source may be published.
        topics: when not empty, only tasks that carry one of these.
        limits: this host's own limits; None: those of admission and level.
        flavors: ids of the runtimes unpacked here, for bundles that name none.
        floors: lowest versions.
        newest_time: of any cosignature ever verified on this host, POSIX s.
        revocations: the newest statement that this host has seen; None before any.
        serial: of this verifier's release; 0 for an unfrozen one, which has none.
        platform: whose frozen runtimes would run the task; empty: what is installed.
    """

    max_level: str = "pure"
    require_review: bool = False
    require_public_source: bool = False
    topics: frozenset[str] = frozenset()
    limits: RunLimits | None = None
    flavors: frozenset[str] = frozenset()
    floors: Floors = COMPILED_FLOORS
    newest_time: int = 0
    revocations: SeenRevocations | None = None
    serial: int = 0
    platform: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedAdmission:
    """A statement that the gate signed and the log holds.

    Attributes:
        statement: the permission.
        digest: SHA-256 of the statement's PAE.
        epoch: the gate epoch that signed.
        proven: where in the log it stands.
    """

    statement: Statement
    digest: Digest
    epoch: GateEpoch
    proven: ProvenLeaf


@dataclass(frozen=True, slots=True)
class VerifiedTask:
    """What may now be run, and with what.

    Attributes:
        admission: statement, its digest, epoch and place in the log.
        level: the level, of this executor's own release.
        limits: in force: lowest of admission, level and opt-in.
        task_module: source bytes, as admitted.
        arguments: encoded arguments, as admitted.
        blobs: in the admitted order.
    """

    admission: VerifiedAdmission
    level: Level
    limits: RunLimits
    task_module: bytes
    arguments: bytes
    blobs: tuple[bytes, ...]
