"""What a volunteer's executor checks before a byte of a task's source is parsed. Pure.

In the order of design §1.6: sizes, signatures up to the root, log proof, digests, expiry,
revocations, floors, reviews, opt-in. `verify_admission` is the part that the signer asks too,
before it signs. Nothing here opens a socket or reads a clock.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Final

from stoilo.audit.format.proof import (
    Leaf,
    LeafKind,
    check_proof,
    render_leaf,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, PolicyRefusal, TrustError
from stoilo.core.levels import Level
from stoilo.core.libraries import add_libraries, level_order
from stoilo.core.signatures import Envelope, parse_envelope, verify_envelope
from stoilo.core.statement import (
    CODEC_VERSION,
    MAX_LIFETIME_S,
    Statement,
    parse_statement,
    statement_digest,
)
from stoilo.core.types import BOUNDS, RunLimits, lowest_limits
from stoilo.executor.verifier import workunit
from stoilo.executor.verifier.installation import LEVEL_ORDER
from stoilo.executor.verifier.statements import (
    LoggedRevocations,
    check_reviews,
    check_revocation_age,
    in_force,
    newest_seen,
    open_revocations,
)
from stoilo.executor.verifier.targets import Floors, GateEpoch, TrustedRelease
from stoilo.executor.verifier.workunit import (
    HostState,
    InputFile,
    VerifiedAdmission,
    VerifiedTask,
    Work,
)

CLOCK_SKEW_S: Final = 24 * 3600
"""How far a volunteer's clock may lag: wrong time zones are common, weeks are not."""


def check_times(admission: VerifiedAdmission, clock: int) -> None:
    """Refuse what has expired, lives too long or lies outside its epoch.

    Args:
        admission: the verified admission.
        clock: Unix seconds, at least the newest verified cosignature's time.
    """
    statement, epoch = admission.statement, admission.epoch
    lifetime = statement.not_after - statement.admitted_at
    if not 0 < lifetime <= MAX_LIFETIME_S:
        raise TrustError("STO-A043", "the admission lives longer than 14 days")
    if clock > statement.not_after:
        raise TrustError("STO-A040", "the admission has expired")
    # A code of its own: it is our clock that lags, and the same admission is good
    # later.
    if statement.admitted_at > clock + CLOCK_SKEW_S:
        raise TrustError("STO-A042", "the admission lies in the future")
    cosigned = admission.proven.checkpoint_time
    if not epoch.holds(statement.admitted_at, statement.not_after) or not (
        cosigned is None or epoch.not_before <= cosigned <= epoch.not_after
    ):
        raise TrustError("STO-A043", "the admission lies outside its epoch")


def check_release_age(
    admission: VerifiedAdmission, trust: TrustedRelease, clock: int
) -> None:
    """Refuse (STO-K011) a release that had expired on the day of the admission.

    The metadata travelled with the task; that the task itself has not expired, and that
    its epoch holds, is judged by the best time (design §1.6).
    """
    if trust.expires <= min(admission.statement.admitted_at, clock):
        raise TrustError(
            "STO-K011", "the release had expired when the task was admitted"
        )


def check_revocations(admission: VerifiedAdmission, trust: TrustedRelease) -> None:
    """Refuse withdrawn epochs, flavors and digests of any kind."""
    statement = admission.statement
    if statement.epoch in trust.revoked_epochs:
        raise TrustError("STO-A043", "the gate's epoch is revoked")
    if statement.flavor in trust.withdrawn_flavors:
        raise TrustError("STO-A046", "the task's flavor is withdrawn")
    named = {
        admission.digest,
        statement.task_module,
        statement.validator_module,
        statement.arguments,
        statement.flavor,
        statement.level_digest,
        *statement.libraries,
        statement.policy_digest,
        statement.language_digest,
        statement.submitter,
        *statement.blobs,
    }
    if named & trust.denied:
        raise TrustError("STO-A046", "a part of this task is withdrawn")


def check_floors(
    admission: VerifiedAdmission, trust: TrustedRelease, floors: Floors
) -> None:
    """Refuse (STO-A047) versions below those that this host already knows."""
    if (
        trust.root_version < floors.root
        or trust.targets_version < floors.targets
        or trust.revocation_version < floors.revocation
        or admission.statement.epoch < max(floors.epoch, trust.min_epoch)
    ):
        raise TrustError("STO-A047", "the release or epoch is below this host's floor")
    if admission.proven.size < floors.log_size:
        raise TrustError("STO-A047", "the log is shorter than at this release")


def check_verifier_floor(trust: TrustedRelease, host: HostState) -> None:
    """Refuse (STO-A090), without blame, all work of a verifier that is too old.

    An unfrozen executor has no serial: who runs it updates it himself.
    """
    floor = max(host.floors.serial("verifier"), trust.floors.verifier)
    # No blame: the person has to update, and the project must not count it as a fault.
    if 0 < host.serial < floor:
        raise PolicyRefusal(
            "STO-A090",
            f"this verifier is release {host.serial} and the project needs {floor}",
            hint="please update: reset the project in BOINC, or start it again",
        )


def check_runtime_floor(
    statement: Statement, trust: TrustedRelease, host: HostState
) -> None:
    """Refuse (STO-A047, STO-A046) a frozen runtime below a floor, or withdrawn."""
    part = trust.flavor_part(statement.flavor, host.platform)
    if not host.platform or part is None:
        return
    floor = max(host.floors.serial(part.part), trust.floors.serials.get(part.part, 0))
    if part.serial < floor:
        raise TrustError(
            "STO-A047",
            f"the release offers {part.part} {part.serial}, this host needs {floor}",
        )
    if {part.tree, part.archive.sha256} & trust.denied:
        raise TrustError("STO-A046", "the task's frozen runtime is withdrawn")


def check_review_rules(statement: Statement, trust: TrustedRelease, clock: int) -> int:
    """Return how many reviewers signed; the signed policy may demand one.

    `statement`: of an admission, verified.
    `clock`: Unix seconds.

    Raises:
        TrustError: STO-A055 for a review of one's own task, where
            the policy demands a review and there is none.
    """
    reviews = check_reviews(statement, trust.reviewers, clock)
    # The statement's own word would not do: a thief of the gate key writes statements.
    if not reviews and trust.needs_review(statement.policy_digest, statement.level):
        raise TrustError("STO-A055", "the policy demands a review and there is none")
    return reviews


def verify_work(
    work: Work, trust: TrustedRelease, host: HostState, now: int
) -> VerifiedTask:
    """Return the task if it may run here and now; fails closed.

    Args:
        work: the workunit, hostile.
        trust: the verified release.
        host: this volunteer's own opt-in, floors and memory of time.
        now: the host's clock, Unix seconds; may be wrong. In force is the latest of it,
            the newest cosignature here and the newest one ever verified on this host.

    Raises:
        TrustError: a code of STO-A002 to STO-A046, or the log's STO-L codes.
        PolicyRefusal: STO-A050, STO-A090 and STO-X013, not for this host.
    """
    with ExitStack() as opened:
        # All sizes come first: nothing is parsed that is not bounded.
        blobs = work.blobs()
        if len(blobs) > BOUNDS.blobs_per_task:
            raise TrustError("STO-A020", "more blobs came than any task may have")
        names = (workunit.TASK_MODULE, workunit.ARGUMENTS, *blobs)
        inputs = [opened.enter_context(work.open(name)) for name in names]
        envelope, proof = work.read(workunit.ADMISSION), work.read(workunit.PROOF)
        admission = verify_admission(envelope, proof, trust)
        withdrawn = open_revocations(work.read(workunit.REVOCATIONS), trust)
        statement = admission.statement
        _check_identity(work, statement, trust)
        level = _check_level(work, statement, trust)
        module, arguments, *data = _check_digests(inputs, statement)
    cosigned = (admission.proven.checkpoint_time, withdrawn.proven.checkpoint_time)
    clock = max(now, host.newest_time, *(time or 0 for time in cosigned))
    check_times(admission, clock)
    check_release_age(admission, trust, clock)
    trust = _check_statement(withdrawn, admission, trust, host, clock)
    check_revocations(admission, trust)
    check_floors(admission, trust, host.floors)
    check_verifier_floor(trust, host)
    check_runtime_floor(statement, trust, host)
    reviews = check_review_rules(statement, trust, clock)
    _check_opt_in(statement, level, host, reviews)
    if statement.flavor not in host.flavors:
        raise PolicyRefusal("STO-X013", "the task's flavor is not installed here")
    return VerifiedTask(
        admission=admission,
        level=level,
        limits=_limits_in_force(statement, level, host),
        task_module=module,
        arguments=arguments,
        blobs=tuple(data),
    )


def verify_admission(
    envelope: bytes, proof: bytes, trust: TrustedRelease
) -> VerifiedAdmission:
    """Check signatures and log proof only: what an auditor can check of any task.

    Raises:
        TrustError: STO-A002, STO-A043, STO-A057, and the log's STO-L codes.
    """
    parsed = parse_envelope(envelope)
    epoch = _signing_epoch(parsed, trust)
    statement = parse_statement(parsed.payload)
    if statement.epoch != epoch.number:
        raise TrustError(
            "STO-A043", "the admission names an epoch whose key did not sign it"
        )
    if not 0 < len(proof) <= BOUNDS.proof_bytes:
        raise TrustError("STO-A057", "the log proof is missing or too large")
    digest = statement_digest(parsed.payload)
    leaf = admission_leaf(statement, parsed.payload)
    proven = check_proof(proof, leaf, trust.log_policy)
    return VerifiedAdmission(statement, digest, epoch, proven)


def admission_leaf(statement: Statement, payload: bytes) -> bytes:
    """Return the leaf that `payload`, the bytes of `statement`, has in the log."""
    return render_leaf(
        Leaf(
            kind=LeafKind.ADMISSION,
            digest=statement_digest(payload),
            epoch=str(statement.epoch),
            time=statement.admitted_at,
        )
    )


def check_validator_module(statement: Statement, source: bytes) -> None:
    """Refuse (STO-A024) to judge results by a validator that was not admitted.

    The validator never leaves the server, so this check is the server's.
    """
    if content_digest(source) != statement.validator_module:
        raise TrustError("STO-A024", "the validator module is not the admitted one")


def _signing_epoch(envelope: Envelope, trust: TrustedRelease) -> GateEpoch:
    """Return the epoch whose keys signed; the newest is tried first."""
    refusal = TrustError("STO-A006", "the release certifies no gate key")
    for epoch in reversed(trust.epochs):
        try:
            verify_envelope(envelope, epoch.keys, threshold=epoch.threshold)
        except TrustError as error:
            if refusal.code == "STO-A006":
                refusal = error
        else:
            return epoch
    raise refusal


def _check_identity(work: Work, statement: Statement, trust: TrustedRelease) -> None:
    if statement.origin != trust.origin:
        raise TrustError("STO-A020", "the admission is for another project")
    if statement.task_id != work.task_id:
        raise TrustError("STO-A020", "the admission is for another task")
    if statement.attempt != work.attempt:
        raise TrustError("STO-A020", "the admission is for another attempt")
    if statement.python != trust.python:
        raise TrustError("STO-A032", f"the task needs Python {statement.python}")
    if statement.codec != CODEC_VERSION:
        raise TrustError("STO-A032", "the values are in another version of the codec")
    if trust.policies and statement.policy_digest not in trust.policies:
        raise TrustError(
            "STO-A006", "the policy is not one that the policy role signed"
        )


def _check_level(work: Work, statement: Statement, trust: TrustedRelease) -> Level:
    if statement.level != work.app:
        raise TrustError(
            "STO-A020", f"the app is not one for tasks of level {statement.level}"
        )
    level = trust.level(statement.level, statement.level_digest)
    if level is None:
        raise TrustError("STO-A032", "this release has no such level")
    if statement.level_digest != level.digest:
        raise TrustError("STO-A032", "the level's file is not one this release holds")
    if statement.language_digest not in trust.languages:
        raise TrustError("STO-A032", "the source was judged by another language layer")
    _check_flavor_libraries(statement, level, trust)
    try:
        wide = add_libraries(level, map(trust.library, statement.libraries))
    except InternalError as error:
        raise TrustError("STO-A032", error.message) from error
    if wide.libraries != statement.libraries:
        raise TrustError("STO-A032", "the libraries are in another order")
    return wide


def _check_flavor_libraries(
    statement: Statement, level: Level, trust: TrustedRelease
) -> None:
    """Refuse (STO-A032) other libraries than the flavor's that the level may use."""
    # All are in the tree: one left out would be there with its classes not closed.
    flavor = statement.flavor
    for listed in {one.libraries for one in trust.parts if one.flavor == flavor}:
        held = (trust.library(digest) for digest in listed)
        fits = tuple(one.digest for one in held if level_order(one) <= level.order)
        if fits != statement.libraries:
            raise TrustError("STO-A032", "the libraries are not those of the flavor")


def _check_digests(inputs: list[InputFile], statement: Statement) -> list[bytes]:
    module, arguments = inputs[0].read(), inputs[1].read()
    if content_digest(module) != statement.task_module:
        raise TrustError("STO-A020", "the task module is not the admitted one")
    if content_digest(arguments) != statement.arguments:
        raise TrustError("STO-A020", "the arguments are not the admitted ones")
    if len(inputs) - 2 != len(statement.blobs):
        raise TrustError("STO-A020", "the number of blobs is not the admitted one")
    blobs = [one.read() for one in inputs[2:]]
    found = tuple(content_digest(blob) for blob in blobs)
    if found != statement.blobs:
        if Counter(found) == Counter(statement.blobs):
            raise TrustError("STO-A020", "the blobs are not in the admitted order")
        raise TrustError("STO-A020", "a blob is not the admitted one")
    return [module, arguments, *blobs]


def _check_statement(
    withdrawn: LoggedRevocations,
    admission: VerifiedAdmission,
    trust: TrustedRelease,
    host: HostState,
    clock: int,
) -> TrustedRelease:
    """Return the release with what this host knows to be withdrawn online.

    Raises:
        TrustError: STO-A074 to STO-A076.
    """
    seen = newest_seen(host.revocations, withdrawn.statement, trust).statement
    check_revocation_age(
        withdrawn.statement,
        admitted_at=admission.statement.admitted_at,
        checkpoint_time=admission.proven.checkpoint_time,
        clock=clock,
        seen=seen,
    )
    return in_force(trust, seen)


def _check_opt_in(
    statement: Statement, level: Level, host: HostState, reviews: int
) -> None:
    if level.order > LEVEL_ORDER.get(host.max_level, 0):
        raise PolicyRefusal("STO-A050", f"this host allows {host.max_level} at most")
    if host.require_review and not reviews:
        raise PolicyRefusal("STO-A050", "this host runs only reviewed tasks")
    if host.require_public_source and not statement.public_source:
        raise PolicyRefusal("STO-A050", "this host runs only tasks of public source")
    if host.topics and not host.topics & set(statement.topics):
        raise PolicyRefusal("STO-A050", "the task carries none of this host's topics")


def _limits_in_force(statement: Statement, level: Level, host: HostState) -> RunLimits:
    limits = lowest_limits(statement.limits, level.max_limits())
    return limits if host.limits is None else lowest_limits(limits, host.limits)
