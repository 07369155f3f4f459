import dataclasses
from pathlib import Path

import pytest

from stoilo.audit.format.policy import open_checkpoint
from stoilo.core.digests import content_digest
from stoilo.core.rate_limit import WindowLimit
from stoilo.core.signatures import PrivateKey
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.signer.development.changes import revoke
from stoilo.signer.process.protocol import (
    Admission,
    CheckpointSigned,
    EnvelopesSigned,
    Ping,
    Pong,
    Refreshed,
    RefreshMetadata,
    Refused,
    Response,
    SignAdmissions,
    SignCheckpoint,
    Signed,
)
from stoilo.signer.process.service import SignerService
from tests.support.gate import (
    DAY_S,
    MODULE,
    NOW,
    Admitted,
    GateBench,
    host_state,
    verify_bundle,
)


class Clock:
    """A clock that tests move."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def service(gate: GateBench, now: int = NOW) -> SignerService:
    return SignerService(gate.root.directory, clock=Clock(now))


def sign(gate: GateBench, admitted: Admitted, now: int = NOW) -> Signed | Refused:
    request = SignAdmissions((Admission(admitted.payload, admitted.proof),))
    response = service(gate, now).answer(request)
    assert isinstance(response, EnvelopesSigned)
    return response.answers[0]


def code_of(answer: Response | Signed | Refused) -> str:
    assert isinstance(answer, Refused), answer
    return answer.code


def test_signed_admission_is_what_a_volunteer_verifies(gate: GateBench) -> None:
    admitted = gate.admit(gate.statement())
    answer = sign(gate, admitted)
    assert isinstance(answer, Signed)
    bundle = gate.bundle(dataclasses.replace(admitted, envelope=answer.envelope))
    assert verify_bundle(bundle, gate.root.trust, host_state(), NOW)


def test_signing_again_gives_the_same_envelope(gate: GateBench) -> None:
    admitted = gate.admit(gate.statement())
    assert sign(gate, admitted) == sign(gate, admitted)


def test_statement_that_is_not_in_the_log_is_not_signed(gate: GateBench) -> None:
    logged, other = gate.admit(gate.statement()), gate.admit(gate.statement())
    forged = dataclasses.replace(logged, proof=other.proof)
    assert code_of(sign(gate, forged)) == "STO-L020"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"origin": "elsewhere"}, "STO-A020"),
        ({"epoch": 9}, "STO-K024"),
        ({"epoch": 2}, "STO-K024"),
        ({"admitted_at": NOW + 301, "not_after": NOW + DAY_S}, "STO-K024"),
        ({"not_after": NOW + 15 * DAY_S}, "STO-A043"),
        ({"admitted_at": NOW - DAY_S, "not_after": NOW + 1}, "STO-A043"),
    ],
)
def test_statement_outside_its_bounds_is_not_signed(
    gate: GateBench, fields: dict[str, object], code: str
) -> None:
    assert code_of(sign(gate, gate.admit(gate.statement(**fields)))) == code


def test_expired_statement_is_not_signed(gate: GateBench) -> None:
    admitted = gate.admit(gate.statement())
    assert code_of(sign(gate, admitted, NOW + 2 * DAY_S)) == "STO-A040"


def test_epoch_is_closed_after_its_end(gate: GateBench) -> None:
    admitted = gate.admit(gate.statement())
    assert code_of(sign(gate, admitted, NOW + 29 * DAY_S)) == "STO-K024"


def test_withdrawn_work_is_not_signed_without_a_restart(gate: GateBench) -> None:
    signer = service(gate)
    admitted = gate.admit(gate.statement())
    request = SignAdmissions((Admission(admitted.payload, admitted.proof),))
    first = signer.answer(request)
    revoke(gate.root.directory, RevocationFile((content_digest(MODULE),)), NOW)
    second = signer.answer(request)
    assert isinstance(first, EnvelopesSigned)
    assert isinstance(second, EnvelopesSigned)
    assert isinstance(first.answers[0], Signed)
    assert code_of(second.answers[0]) == "STO-A046"


def test_work_with_a_withdrawn_library_is_not_signed(gate: GateBench) -> None:
    library = content_digest(b"a library's file")
    admitted = gate.admit(gate.statement(libraries=(library,)))
    assert isinstance(sign(gate, admitted), Signed)
    revoke(gate.root.directory, RevocationFile((library,)), NOW)
    assert code_of(sign(gate, admitted)) == "STO-A046"


def test_one_bad_admission_in_a_batch_harms_no_other(gate: GateBench) -> None:
    good = gate.admit(gate.statement())
    rows = (
        Admission(good.payload, good.proof),
        Admission(b"{}", b""),
        Admission(good.payload, good.proof),
    )
    response = service(gate).answer(SignAdmissions(rows))
    assert isinstance(response, EnvelopesSigned)
    kinds = [type(answer) for answer in response.answers]
    assert kinds == [Signed, Refused, Signed]


def test_checkpoint_is_signed_for_readers_of_the_log(gate: GateBench) -> None:
    response = service(gate).answer(SignCheckpoint(gate.checkpoint_body()))
    assert isinstance(response, CheckpointSigned)
    opened = open_checkpoint(response.note, gate.root.trust.log_policy)
    assert opened.checkpoint.size == gate.tree.size


def test_metadata_is_renewed_before_it_expires(gate: GateBench) -> None:
    later = NOW + 5 * DAY_S
    signer = service(gate, later)
    response = signer.answer(RefreshMetadata())
    assert isinstance(response, Refreshed)
    assert response.expires > later + 5 * DAY_S


def test_signer_says_which_log_it_signs(gate: GateBench) -> None:
    pong = service(gate).answer(Ping())
    assert isinstance(pong, Pong)
    assert pong.log_vkey == gate.root.log_vkey


def test_admission_without_the_witness_quorum_is_not_signed(tmp_path: Path) -> None:
    """A thief of the log's key alone gets no admission under its unseen tree."""
    gate = GateBench(tmp_path / "witnessed", witnessed=True)
    admitted = gate.admit(gate.statement())
    assert code_of(sign(gate, gate.strip_cosignatures(admitted))) == "STO-L013"
    assert isinstance(sign(gate, admitted), Signed)  # control


def test_cosignature_by_a_stranger_is_no_quorum(tmp_path: Path) -> None:
    gate = GateBench(tmp_path / "witnessed", witnessed=True)
    gate.witness_key = PrivateKey.generate().key
    assert code_of(sign(gate, gate.admit(gate.statement()))) == "STO-L013"


def test_epoch_signs_no_more_than_its_rate_in_any_minute(gate: GateBench) -> None:
    signer = service(gate)
    statement = gate.statement()
    signer._rates[statement.epoch] = WindowLimit(1, 60, lambda: NOW)
    asked = [gate.admit(statement), gate.admit(gate.statement())]
    request = SignAdmissions(tuple(Admission(a.payload, a.proof) for a in asked))
    response = signer.answer(request)
    assert isinstance(response, EnvelopesSigned)
    assert isinstance(response.answers[0], Signed)
    assert code_of(response.answers[1]) == "STO-K023"
