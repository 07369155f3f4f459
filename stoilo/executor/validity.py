"""Whether a genuine admission still holds here: its time, what was withdrawn, floors, reviews.

Second half of `stoilo.executor.verifier`, which has found by then that signatures, log
proof and digests are right. Pure; the signer asks some of the same before it signs.
"""

from __future__ import annotations

from typing import Final

from stoilo.core.errors import PolicyRefusal, TrustError
from stoilo.core.statement import MAX_LIFETIME_S, Statement
from stoilo.executor.bundle import Floors, HostState, VerifiedAdmission
from stoilo.executor.release import TrustedRelease
from stoilo.executor.review import check_reviews

__all__ = [
    "CLOCK_SKEW_S",
    "check_floors",
    "check_release_age",
    "check_review_rules",
    "check_revocations",
    "check_runtime_floor",
    "check_times",
    "check_verifier_floor",
]

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
        raise TrustError("STO-A041", "the admission lives longer than 14 days")
    if clock > statement.not_after:
        raise TrustError("STO-A040", "the admission has expired")
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
        raise TrustError("STO-A045", "the gate's epoch is revoked")
    if statement.flavor in trust.withdrawn_flavors:
        raise TrustError("STO-A080", "the task's flavor is withdrawn")
    named = {
        admission.digest,
        statement.task_module,
        statement.validator_module,
        statement.arguments,
        statement.flavor,
        statement.level_digest,
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
    """Refuse (STO-A047, STO-A048) versions below those that this host already knows."""
    if (
        trust.root_version < floors.root
        or trust.targets_version < floors.targets
        or trust.revocation_version < floors.revocation
        or admission.statement.epoch < max(floors.epoch, trust.min_epoch)
    ):
        raise TrustError("STO-A047", "the release or epoch is below this host's floor")
    if admission.proven.size < floors.log_size:
        raise TrustError("STO-A048", "the log is shorter than at this release")


def check_verifier_floor(trust: TrustedRelease, host: HostState) -> None:
    """Refuse (STO-A090), without blame, all work of a verifier that is too old.

    An unfrozen executor has no serial: who runs it updates it himself.
    """
    floor = max(host.floors.verifier, trust.floors.verifier)
    if 0 < host.serial < floor:
        raise PolicyRefusal(
            "STO-A090",
            f"this verifier is release {host.serial} and the project needs {floor}",
            hint="please update: reset the project in BOINC, or start it again",
        )


def check_runtime_floor(
    statement: Statement, trust: TrustedRelease, host: HostState
) -> None:
    """Refuse (STO-A091, STO-A092) a frozen runtime below a floor, or withdrawn."""
    part = trust.flavor_part(statement.flavor, host.platform)
    if not host.platform or part is None:
        return
    floor = max(
        host.floors.serials.get(part.part, 0), trust.floors.serials.get(part.part, 0)
    )
    if part.serial < floor:
        raise TrustError(
            "STO-A091",
            f"the release offers {part.part} {part.serial}, this host needs {floor}",
        )
    if {part.tree, part.archive.sha256} & trust.denied:
        raise TrustError("STO-A092", "the task's frozen runtime is withdrawn")


def check_review_rules(statement: Statement, trust: TrustedRelease, clock: int) -> int:
    """Return how many reviewers signed; the signed policy may demand one.

    Args:
        statement: of an admission, verified.
        trust: the release, with reviewers and policies.
        clock: Unix seconds.

    Raises:
        TrustError: STO-A055, STO-A061 for a review of one's own task, STO-A062 where
            the policy demands a review and there is none.
    """
    reviews = check_reviews(statement, trust.reviewers, clock)
    if not reviews and trust.needs_review(statement.policy_digest, statement.level):
        raise TrustError("STO-A062", "the policy demands a review and there is none")
    return reviews
