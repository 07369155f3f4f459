from pathlib import Path

import pytest

from stoilo.core.errors import TrustError
from stoilo.core.signatures import PrivateKey, parse_envelope, verify_envelope
from stoilo.core.statement import (
    RECORD_PAYLOAD,
    RevocationStatement,
    render_revocation,
    render_statement,
    split_revocations,
)
from stoilo.executor.verifier.admission import admission_leaf
from stoilo.executor.verifier.statements import open_revocations, revocation_leaf
from stoilo.executor.verifier.targets import RevocationFile
from stoilo.signer.development.changes import replace_online_key, revoke
from stoilo.signer.process.memory import (
    REVOCATION_LEDGER,
    RevocationLedger,
    judge_statement,
)
from stoilo.signer.process.protocol import (
    Admission,
    EnvelopesSigned,
    LastRevocation,
    Refused,
    Response,
    RevocationSigned,
    SignAdmissions,
    SignRevocation,
)
from stoilo.signer.process.service import SignerService
from tests.support.gate import NOW, GateBench


def service(gate: GateBench) -> SignerService:
    return SignerService(gate.root.directory, clock=lambda: NOW)


def ask(
    signer: SignerService, gate: GateBench, statement: RevocationStatement
) -> Response:
    payload = render_revocation(statement)
    return signer.answer(SignRevocation(payload, gate.log(revocation_leaf(payload))))


def refusal(response: Response) -> str:
    assert isinstance(response, Refused)
    return response.code


def test_logged_statement_is_signed_by_the_online_key(gate: GateBench) -> None:
    response = ask(service(gate), gate, gate.revocation(epochs=(9,)))
    assert isinstance(response, RevocationSigned)
    keys = gate.root.trust.revocation_keys
    envelope = parse_envelope(response.envelope)
    assert verify_envelope(envelope, keys, payload_type=RECORD_PAYLOAD)


def test_statement_that_is_not_logged_is_not_signed(gate: GateBench) -> None:
    _, proof = split_revocations(gate.revocations)
    payload = render_revocation(gate.revocation(epochs=(9,)))
    assert refusal(service(gate).answer(SignRevocation(payload, proof))) == "STO-A071"
    assert not (gate.root.directory / "state" / REVOCATION_LEDGER).exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sequence": 3}, "STO-A083"),
        ({"sequence": 2}, "STO-A083"),
        ({"sequence": 4}, "STO-A084"),
        ({"sequence": 4, "epochs": (9,), "min_epoch": 1}, "STO-A084"),
        ({"sequence": 4, "epochs": (9,), "min_epoch": 2, "base": 9}, "STO-A083"),
        (
            {"sequence": 4, "epochs": (9,), "min_epoch": 2, "time": NOW + 999},
            "STO-A083",
        ),
        ({"sequence": 4, "epochs": (9,), "min_epoch": 2, "origin": "x/y"}, "STO-A083"),
        (
            {"sequence": 4, "epochs": (9,), "min_epoch": 2, "offline": "e" * 64},
            "STO-A083",
        ),
        ({"sequence": 4, "issuer": "offline"}, "STO-A083"),
    ],
)
def test_statement_that_could_widen_is_not_signed(
    gate: GateBench, changes: dict[str, object], code: str
) -> None:
    signer = service(gate)
    first = gate.revocation(sequence=3, epochs=(9,), min_epoch=2)
    assert isinstance(ask(signer, gate, first), RevocationSigned)
    assert refusal(ask(signer, gate, gate.revocation(**changes))) == code
    assert refusal(ask(service(gate), gate, gate.revocation(**changes))) == code


def test_same_statement_again_gives_the_same_envelope(gate: GateBench) -> None:
    signer, statement = service(gate), gate.revocation(epochs=(9,))
    first = ask(signer, gate, statement)
    assert ask(signer, gate, statement) == first
    assert service(gate).answer(LastRevocation()) == first


def test_admission_of_an_epoch_withdrawn_online_is_not_signed(gate: GateBench) -> None:
    signer, statement = service(gate), gate.statement()
    payload = render_statement(statement)
    asked = SignAdmissions(
        (Admission(payload, gate.log(admission_leaf(statement, payload))),)
    )

    def code() -> str:
        answer = signer.answer(asked)
        assert isinstance(answer, EnvelopesSigned)
        (one,) = answer.answers
        return one.code if isinstance(one, Refused) else ""

    assert code() == ""
    ask(signer, gate, gate.revocation(epochs=(1,)))
    assert code() == "STO-A043"
    signer = service(gate)
    assert code() == "STO-A043"


def test_settled_statement_may_be_followed_by_less(gate: GateBench) -> None:
    signer = service(gate)
    ask(signer, gate, gate.revocation(sequence=3, epochs=(9,)))
    revoke(gate.root.directory, RevocationFile(settled=3), NOW)
    gate.root = gate._make_root(gate.root.directory, gate.root.origin)
    response = ask(signer, gate, gate.revocation(sequence=4))
    assert isinstance(response, RevocationSigned)


def test_replaced_online_key_signs_and_the_old_one_counts_no_more(
    gate: GateBench,
) -> None:
    signer = service(gate)
    ask(signer, gate, gate.revocation(sequence=2**53 - 1, epochs=(9,)))
    listed = replace_online_key(gate.root.directory, NOW)
    assert listed.epochs == (9,)
    gate.root = gate._make_root(gate.root.directory, gate.root.origin)
    assert signer.answer(LastRevocation()) == RevocationSigned(b"", b"")
    with pytest.raises(TrustError, match="STO-A071"):
        open_revocations(gate.revocations, gate.root.trust)
    assert isinstance(ask(signer, gate, gate.revocation()), RevocationSigned)


def test_first_statement_of_a_key_may_say_anything(gate: GateBench) -> None:
    judge_statement(None, gate.revocation(epochs=(9,)), gate.root.trust, NOW)


def test_damaged_memory_stops_the_signer(gate: GateBench) -> None:
    path = gate.root.directory / "state" / REVOCATION_LEDGER
    path.write_bytes(b"{}")
    path.chmod(0o600)
    with pytest.raises(TrustError, match="STO-A086"):
        service(gate)


def test_memory_is_written_before_the_signature(
    tmp_path: Path, gate: GateBench
) -> None:
    path, key = tmp_path / "memory.json", PrivateKey.generate().public
    payload = render_revocation(gate.revocation(epochs=(9,)))
    RevocationLedger(path).record(payload, key, gate.root.trust, NOW)
    assert RevocationLedger(path).signed_by(key) == payload
    assert RevocationLedger(path).signed_by(PrivateKey.generate().public) == b""
    assert path.stat().st_mode & 0o077 == 0
