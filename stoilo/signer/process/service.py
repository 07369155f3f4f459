"""What the signer decides: requests in, signatures or refusals out; no sockets here.

It believes its caller in nothing. An admission is signed only when the log proof holds
under the release's own log policy, its times lie inside its epoch, nothing in it is
withdrawn and the epoch's rate is not exhausted. A checkpoint is signed only after it has
been recorded as the next one of its log (`stoilo.signer.process.memory`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, assert_never

from stoilo.audit.format.merkle import parse_checkpoint
from stoilo.audit.format.note import (
    KeyType,
    Note,
    private_vkey,
    render_note,
    render_vkey,
    sign_note,
)
from stoilo.audit.format.proof import check_proof
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.rate_limit import WindowLimit
from stoilo.core.signatures import (
    IN_TOTO_PAYLOAD,
    PrivateKey,
    render_envelope,
    sign_envelope,
)
from stoilo.core.statement import (
    RECORD_PAYLOAD,
    Statement,
    parse_statement,
    statement_digest,
)
from stoilo.executor.verifier.admission import (
    admission_leaf,
    check_review_rules,
    check_revocations,
    check_times,
)
from stoilo.executor.verifier.statements import in_force, prove_revocation
from stoilo.executor.verifier.targets import GateEpoch
from stoilo.executor.verifier.trust import InstalledRelease, load_trust
from stoilo.executor.verifier.workunit import VerifiedAdmission
from stoilo.signer.key_files import read_private_key, read_trusted_file
from stoilo.signer.process.memory import (
    LEDGER_FILE,
    REVOCATION_LEDGER,
    CheckpointLedger,
    RevocationLedger,
)
from stoilo.signer.process.online_keys import certified_online_key, find_key
from stoilo.signer.process.protocol import (
    Admission,
    CheckpointSigned,
    EnvelopesSigned,
    LastRevocation,
    Ping,
    Pong,
    Refreshed,
    RefreshMetadata,
    Refused,
    Request,
    Response,
    RevocationSigned,
    SignAdmissions,
    SignCheckpoint,
    Signed,
    SignRevocation,
)
from stoilo.signer.release_pack import read_release
from stoilo.signer.repository import publishing, refresh_online_metadata

MINUTE_S: Final = 60

ADMISSION_SKEW_S: Final = 300
"""How far ahead of the signer's clock an admission's time may lie."""

_NOTHING_INSTALLED: Final = InstalledRelease(levels=(), language_digest="")


def wall_clock() -> int:
    """Return Unix seconds."""
    return int(time.time())


class SignerService:
    """The keys and their rules; answers one request at a time."""

    def __init__(
        self,
        # made by `stoilo.signer.development.root`, or by `online_keys` and published
        # into by a ceremony
        directory: Path,
        *,
        clock: Callable[[], int] = wall_clock,  # Unix seconds
        # the memory; the directory's own unless given
        ledger: CheckpointLedger | None = None,
    ) -> None:
        """Load the log key, the release and the memory of the log.

        Raises:
            TrustError: STO-K001, K003, K028, K029, or the release's codes.
        """
        self._directory = directory
        self._clock = clock
        self._root = read_trusted_file(directory / "root.json")
        self._log_key = read_private_key(directory / "online" / "log.pem")
        self._ledger = ledger or CheckpointLedger(directory / "state" / LEDGER_FILE)
        self._gate_keys: dict[int, PrivateKey] = {}
        self._rates: dict[int, WindowLimit] = {}
        self._stamp = 0
        # Before the release is read: an expired timestamp would refuse it as a whole.
        self._sign_online_metadata()
        self._revocations = RevocationLedger(directory / "state" / REVOCATION_LEDGER)
        self._load()

    def answer(self, request: Request) -> Response:
        """Return the answer to `request`; refusals are answers too."""
        try:
            return self._answer(request)
        except StoiloError as error:
            return Refused(error.code, error.message)

    def _answer(self, request: Request) -> Response:
        match request:
            case SignAdmissions(admissions):
                return EnvelopesSigned(self._sign_admissions(admissions))
            case SignCheckpoint(body, consistency):
                return CheckpointSigned(self._sign_checkpoint(body, consistency))
            case SignRevocation(statement, proof):
                return self._sign_revocation(statement, proof)
            case LastRevocation():
                return self._signed_revocation()
            case RefreshMetadata():
                return Refreshed(self._refresh())
            case Ping():
                return self._identify()
            case _:
                assert_never(request)

    def _sign_admissions(
        self, admissions: Sequence[Admission]
    ) -> tuple[Signed | Refused, ...]:
        """Answer each admission by itself: one bad one harms no other."""
        self._reload_if_changed()
        answers: list[Signed | Refused] = []
        for admission in admissions:
            try:
                answers.append(Signed(self._sign_admission(admission)))
            except StoiloError as error:
                answers.append(Refused(error.code, error.message))
        return tuple(answers)

    def _sign_admission(self, admission: Admission) -> bytes:
        """Return the DSSE envelope over the statement's bytes, as they came."""
        statement = parse_statement(admission.statement)
        if statement.origin != self._trust.origin:
            raise TrustError("STO-A020", "the statement is for another project")
        epoch = self._open_epoch(statement)
        # The leaf is made here from the bytes to sign: a proof for another leaf
        # is no use.
        leaf = admission_leaf(statement, admission.statement)
        proven = check_proof(admission.proof, leaf, self._trust.log_policy.current)
        verified = VerifiedAdmission(
            statement, statement_digest(admission.statement), epoch, proven
        )
        # A clock set back must not bring withdrawn or expired things to life again.
        clock = max(self._clock(), proven.checkpoint_time or 0)
        check_times(verified, clock)
        check_revocations(verified, self._trust)
        check_review_rules(statement, self._trust, clock)
        # Last of the checks: what is refused anyway spends nothing.
        if not self._rate(epoch).take(1):
            raise TrustError(
                "STO-K023", f"the epoch allows {epoch.max_per_minute} a minute"
            )
        key = self._gate_key(epoch)
        keyid = f"gate-{epoch.number}"
        envelope = sign_envelope(admission.statement, [(keyid, key)], IN_TOTO_PAYLOAD)
        return render_envelope(envelope)

    def _open_epoch(self, statement: Statement) -> GateEpoch:
        """Return the statement's epoch, if it is open now."""
        now = self._clock()
        for epoch in self._trust.epochs:
            if epoch.number == statement.epoch and (
                epoch.not_before <= now <= epoch.not_after
                and epoch.number >= self._trust.min_epoch
                and statement.admitted_at <= now + ADMISSION_SKEW_S
            ):
                return epoch
        raise TrustError("STO-K024", f"epoch {statement.epoch} is not open now")

    def _sign_checkpoint(self, body: bytes, consistency: Sequence[bytes]) -> bytes:
        """Record, then sign; the order is the point."""
        checkpoint = parse_checkpoint(body)
        self._ledger.record(checkpoint, consistency)
        signature = sign_note(body, checkpoint.origin, self._log_key.key)
        return render_note(Note(body, (signature,)))

    def _sign_revocation(self, payload: bytes, proof: bytes) -> RevocationSigned:
        """Record, then sign, what the log holds and takes nothing back."""
        self._reload_if_changed()
        key = self._revocation_key()
        prove_revocation(payload, proof, self._release.log_policy.current)
        self._revocations.record(payload, key.public, self._release, self._clock())
        self._trust = in_force(self._release, self._revocations.last)
        return self._signed_revocation()

    def _signed_revocation(self) -> RevocationSigned:
        """Return the newest statement and its envelope: signing it again is harmless."""
        self._reload_if_changed()
        key = self._revocation_key()
        payload = self._revocations.signed_by(key.public)
        if not payload:
            return RevocationSigned(b"", b"")
        envelope = sign_envelope(payload, [("revocation", key)], RECORD_PAYLOAD)
        return RevocationSigned(payload, render_envelope(envelope))

    def _revocation_key(self) -> PrivateKey:
        """Return the online revocation key, which the offline role must name."""
        return find_key(self._directory, "revocation", self._release.revocation_keys)

    def _refresh(self) -> int:
        """Sign online metadata where due; return when it expires."""
        self._sign_online_metadata()
        self._load()
        return self._trust.expires

    def _sign_online_metadata(self) -> None:
        key = certified_online_key(self._directory)
        with publishing(self._directory):
            refresh_online_metadata(self._directory, key, self._clock())

    def _identify(self) -> Pong:
        """Return the log's verifier key and the newest size signed."""
        last = self._ledger.last
        key = private_vkey(last.origin, KeyType.ED25519, self._log_key.key)
        return Pong(log_vkey=render_vkey(key), size=last.size, pid=os.getpid())

    def _load(self) -> None:
        """Verify the release as any volunteer would; add what was withdrawn since."""
        self._stamp = self._timestamp_stamp()
        self._release = load_trust(
            read_release(self._directory),
            self._root,
            self._clock(),
            installed=_NOTHING_INSTALLED,
        )
        self._trust = in_force(self._release, self._revocations.last)

    def _reload_if_changed(self) -> None:
        """Take up new metadata, and renew what has expired."""
        if self._trust.expires <= self._clock():
            self._refresh()
        elif self._timestamp_stamp() != self._stamp:
            self._load()

    def _timestamp_stamp(self) -> int:
        path = self._directory / "metadata" / "timestamp.json"
        # The timestamp is written last in every publication.
        return path.stat().st_mtime_ns

    def _gate_key(self, epoch: GateEpoch) -> PrivateKey:
        """Return the epoch's key, which must be one that the epoch certifies."""
        key = self._gate_keys.get(epoch.number)
        if key is None:
            path = self._directory / "online" / f"gate-{epoch.number}.pem"
            key = read_private_key(path)
            # A file put in its place must not sign what volunteers would refuse.
            if key.public not in epoch.keys:
                raise TrustError("STO-K029", f"{path.name} is not the certified key")
            self._gate_keys[epoch.number] = key
        return key

    def _rate(self, epoch: GateEpoch) -> WindowLimit:
        """Return the epoch's rate, as certified."""
        if epoch.number not in self._rates:
            most = epoch.max_per_minute
            self._rates[epoch.number] = WindowLimit(most, MINUTE_S, self._clock)
        return self._rates[epoch.number]
