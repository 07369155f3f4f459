"""Revocation statements in force: written, logged, signed, and handed to workunits.

A statement is issued at the start if none is fresh, every 12 hours, at once after a wish
(`stoilo.server.revocation.wishes`), and when the offline list or the online key has
changed. The order is the admission's: bytes fixed, leaf appended, published, proof checked
by the signer, signed. While a newer statement is on its way nothing is issued, so no workunit
leaves with an older one than the project had decided on.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from stoilo.core.errors import InternalError, StoiloError, TrustError
from stoilo.core.statement import (
    FRESH_S,
    MAX_DIGESTS,
    MAX_EPOCHS,
    MAX_FLAVORS,
    RevocationStatement,
    join_revocations,
    parse_revocation,
    render_revocation,
)
from stoilo.executor.verifier.statements import (
    in_force,
    open_revocations,
    revocation_leaf,
)
from stoilo.server.revocation.wishes import Withdrawals, merge_wishes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.audit.format.policy import LogPolicy
    from stoilo.executor.verifier.targets import TrustedRelease
    from stoilo.server.log.ports import LabelledLog
    from stoilo.signer.process.client import SignerClient


REISSUE_S: Final = 12 * 3600  # A statement is replaced when it is older than this, s
DRAFT_S: Final = 120
"""A logged statement that could not be signed is tried again for so long, s."""


def next_statement(
    # the newest statement signed by the present online key
    last: RevocationStatement | None,
    # what is to be added, as a statement; None for nothing
    wishes: RevocationStatement | None,
    trust: TrustedRelease,  # the release, without anything withdrawn online
    now: int,  # Unix seconds
) -> RevocationStatement | None:
    """Return the statement to issue now; None while `last` serves. Pure."""
    settled = last is None or last.sequence <= trust.revocations_settled
    kept = None if settled else last
    wanted = merge_wishes(kept, wishes)
    serves = (
        last is not None
        and last.base == trust.revocation_version
        and last.offline == trust.revocation_digest
        and now - REISSUE_S < last.time <= now + DRAFT_S
        and (wishes is None or (kept is not None and kept.covers(wishes)))
    )
    if serves:
        return None
    floor = max(last.sequence if last else 0, trust.revocations_settled)
    return RevocationStatement(
        origin=trust.origin,
        time=now,
        epoch=_epoch_at(trust, now),
        issuer="online",
        sequence=floor + 1,
        base=trust.revocation_version,
        offline=trust.revocation_digest,
        epochs=wanted.epochs,
        min_epoch=wanted.min_epoch,
        digests=wanted.digests,
        flavors=wanted.flavors,
    )


def offline_records(trust: TrustedRelease, now: int) -> list[RevocationStatement]:
    """Return what the log tells of an offline list: one record, more for a long list.

    Args:
        trust: the release, without anything withdrawn online.
        now: Unix seconds.
    """
    digests = sorted(trust.denied)
    flavors = sorted(trust.withdrawn_flavors)
    epochs = sorted(trust.revoked_epochs)
    count = max(
        1,
        -(-len(digests) // MAX_DIGESTS),
        -(-len(flavors) // MAX_FLAVORS),
        -(-len(epochs) // MAX_EPOCHS),
    )
    return [
        RevocationStatement(
            origin=trust.origin,
            time=now,
            epoch=_epoch_at(trust, now),
            issuer="offline",
            sequence=trust.revocations_settled,
            base=trust.revocation_version,
            offline=trust.revocation_digest,
            epochs=tuple(epochs[part * MAX_EPOCHS : (part + 1) * MAX_EPOCHS]),
            min_epoch=trust.min_epoch,
            digests=tuple(digests[part * MAX_DIGESTS : (part + 1) * MAX_DIGESTS]),
            flavors=tuple(flavors[part * MAX_FLAVORS : (part + 1) * MAX_FLAVORS]),
        )
        for part in range(count)
    ]


def _epoch_at(trust: TrustedRelease, now: int) -> int:
    """Return the newest epoch that has begun, revoked or not."""
    begun = [one.number for one in trust.epochs if one.not_before <= now]
    return max(begun, default=1)


LOGGER = logging.getLogger(__name__)
PUBLISH_TIMEOUT_S: Final = 2.0
"""A log that does not publish so soon is asked again later, s."""

RETRY_S: Final = 2
MOST_BYTES: Final = 256 * 1024


class RevocationIssuer:
    """Keeps one statement in force; thread-safe."""

    def __init__(
        self,
        directory: Path,  # the server's own; holds the newest file, and wishes
        log: LabelledLog,  # the audit log's writer
        signer: SignerClient,  # holds the online revocation key
        # the release as its offline keys signed it
        trust: Callable[[], TrustedRelease],
        clock: Callable[[], int],  # seconds since 1970
        # given each statement's bytes before its leaf is appended
        store_record: Callable[[bytes], None] | None = None,
    ) -> None:
        self._withdrawals = Withdrawals(directory)
        self._log = log
        self._signer = signer
        self._trust = trust
        self._clock = clock
        self._store_record = store_record
        self._issuing = threading.Lock()
        self._file = b""
        self._statement: RevocationStatement | None = None
        self._joined: (
            tuple[TrustedRelease, RevocationStatement | None, TrustedRelease] | None
        ) = None
        self._policy: LogPolicy | None = None
        self._draft: bytes = b""
        self._unpublished: int | None = None
        self._trouble: StoiloError | None = None
        self._retry_at = 0

    @property
    def statement(self) -> RevocationStatement | None:
        """The newest statement signed; None before the first."""
        return self._statement

    def in_force(self) -> TrustedRelease:
        """Return the release with everything that is withdrawn now."""
        trust, statement = self._trust(), self._statement
        known = self._joined
        if known is None or known[0] is not trust or known[1] is not statement:
            known = (trust, statement, in_force(trust, statement))
            self._joined = known  # asked for at every submission, changed twice a day
        return known[2]

    def current(self, admitted_at: int) -> bytes:
        """Return the file for a workunit admitted at `admitted_at` (Unix seconds).

        Raises ``STO-L160`` while there is none, or a newer one is coming.
        """
        statement, now = self._statement, self._clock()
        if self._trouble is not None:
            # Fail closed: with an older statement out, what was just withdrawn would still run.
            raise _waiting(f"a newer one cannot be issued: {self._trouble}")
        if statement is None or not self._file:
            raise _waiting("none is in force yet")
        if self._draft or self._withdrawals.waiting():
            raise _waiting("a newer one is on its way")
        if statement.time < max(admitted_at, now) - FRESH_S:
            raise _waiting("the newest one is older than 24 hours")
        return self._file

    def upkeep(self) -> bool:
        """Issue a statement if one is due; returns whether one was issued.

        What fails is kept as the reason why admissions wait, and tried again.
        """
        with self._issuing:
            now = self._clock()
            # Called twice a second; a signer that is away is not asked as often.
            if self._trouble is not None and now < self._retry_at:
                return False
            try:
                issued = self._upkeep(now)
            except StoiloError as error:
                if self._trouble is None or self._trouble.code != error.code:
                    LOGGER.warning("no revocation statement: %s", error)
                self._trouble, self._retry_at = error, now + RETRY_S
                return False
            self._trouble = None
            return issued

    def _upkeep(self, now: int) -> bool:
        """Issue what is due; raises what keeps it."""
        trust, wishes = self._trust(), self._withdrawals.wanted()
        if trust.log_policy.current != self._policy:  # others must cosign from now on
            self._file, self._policy = b"", trust.log_policy.current
        due = next_statement(self._statement, wishes.statement, trust, now)
        if due is not None or not self._file:  # what the signer remembers decides
            last = self._last(trust)
            due = next_statement(last, wishes.statement, trust, now)
            if due is None and last is not None and not self._file:
                again = {"sequence": last.sequence + 1, "time": now}
                due = msgspec.structs.replace(last, **again)  # its file was lost
        if due is None:
            self._draft = b""
        else:
            self._log_offline_list(trust, now)
            self._issue(due, trust)
        self._withdrawals.drop(wishes)
        return due is not None

    def _last(self, trust: TrustedRelease) -> RevocationStatement | None:
        """Return the newest statement by the present key; the signer knows it."""
        payload, envelope = self._signer.last_revocation()
        last = parse_revocation(payload) if payload else None
        if last != self._statement or not self._file:
            self._take_up(last, envelope, trust)
        return last

    def _take_up(
        self, last: RevocationStatement | None, envelope: bytes, trust: TrustedRelease
    ) -> None:
        """Use the file of an earlier start if it is the newest statement's.

        Raises ``STO-A086`` when the signer has forgotten a newer one: hosts have not,
        and would refuse all work until the numbers are beyond it again.
        """
        self._statement, self._file = last, b""
        stored = self._withdrawals.read_file(MOST_BYTES)
        if not stored:
            return
        try:
            found = open_revocations(stored, _today(trust)).statement
        except StoiloError as error:
            LOGGER.warning("the stored revocations are not used: %s", error)
            return
        if last is None or found.sequence > last.sequence:
            raise TrustError(
                "STO-A086",
                f"the signer has forgotten revocation statement {found.sequence}",
                hint="restore keys/state/revocation.json, or begin with a new key: "
                "stoilo audit revoke --offline --replace-online-key",
            )
        if found == last and envelope:
            self._file = stored

    def _issue(self, due: RevocationStatement, trust: TrustedRelease) -> None:
        """Log, sign, store; the order is the point."""
        if self._unpublished is not None:  # no second leaf before the first is out
            self._log.wait_published(self._unpublished, timeout=PUBLISH_TIMEOUT_S)
        data = self._drafted(due)
        # Record before leaf: whoever finds the leaf can read what it stands for.
        self._store(data)
        label = f"revocation:{parse_revocation(data).sequence}"
        (index,) = self._log.append_many([revocation_leaf(data)], [label])
        self._unpublished = index
        self._log.wait_published(index, timeout=PUBLISH_TIMEOUT_S)
        self._unpublished = None
        proof = self._log.proof(index)
        envelope = self._signer.sign_revocation(data, proof)
        file = join_revocations(envelope, proof)
        # As a volunteer would, before any of them gets it.
        statement = open_revocations(file, _today(trust)).statement
        # Durable before it is in use: a restart must not go back to an older number.
        self._withdrawals.write_file(file)
        self._statement, self._file, self._draft = statement, file, b""

    def _log_offline_list(self, trust: TrustedRelease, now: int) -> None:
        label = f"revocation-offline:{trust.revocation_version}"
        if not self._log.find_label(label):
            leaves = []
            for record in offline_records(trust, now):
                self._store(render_revocation(record))
                leaves.append(revocation_leaf(render_revocation(record)))
            self._log.append_many(leaves, [label] * len(leaves))

    def _store(self, data: bytes) -> None:
        if self._store_record is not None:
            self._store_record(data)

    def _drafted(self, due: RevocationStatement) -> bytes:
        """Return the bytes to log: those of the last try while they still say `due`."""
        if self._draft:
            draft = parse_revocation(self._draft)
            same = msgspec.structs.replace(due, time=draft.time, epoch=draft.epoch)
            # The same bytes again: each other draft would be one more leaf for ever.
            if draft == same and 0 <= due.time - draft.time < DRAFT_S:
                return self._draft
        self._draft = render_revocation(due)
        return self._draft


def _today(trust: TrustedRelease) -> TrustedRelease:
    """Return the release without the log policies of former times: for what is new."""
    return dataclasses.replace(trust, log_policy=trust.log_policy.current)


def _waiting(reason: str) -> InternalError:
    return InternalError(
        "STO-L160", f"workunits wait for a revocation statement: {reason}"
    )
