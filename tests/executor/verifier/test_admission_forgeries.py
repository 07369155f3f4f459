"""Every way to forge an admission, each refused with its own code (issue 2, part 6)."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.limits import BOUNDS
from stoilo.core.signatures import PrivateKey, parse_envelope, render_envelope
from stoilo.executor.verifier import admission
from stoilo.executor.verifier.admission import check_validator_module
from stoilo.executor.verifier.targets import Floors, RevocationFile, TrustedRelease
from stoilo.executor.verifier.trust import load_trust
from stoilo.executor.verifier.workunit import HostState
from stoilo.signer.development.changes import revoke
from stoilo.signer.release_pack import read_release
from tests.support.gate import (
    ARGUMENTS,
    BLOBS,
    DAY_S,
    INSTALLED,
    MODULE,
    NOW,
    VALIDATOR,
    Admitted,
    GateBench,
    TaskBundle,
    host_state,
    verify_bundle,
)

OTHER = content_digest(b"something else")
NUMERIC = INSTALLED.levels[1]
HOST = host_state()


@dataclasses.dataclass
class Case:
    """One attempt at forgery: what arrives, and what the host knows."""

    gate: GateBench
    bundle: TaskBundle
    trust: TrustedRelease
    host: HostState = HOST
    now: int = NOW


Change = Callable[[Case], None]


def honest(gate: GateBench) -> Case:
    return Case(gate, gate.bundle(gate.admit(gate.statement())), gate.root.trust)


def bundle(**changes: object) -> Change:
    def change(case: Case) -> None:
        case.bundle = dataclasses.replace(case.bundle, **changes)  # type: ignore[arg-type]  # named below

    return change


def trust(**changes: object) -> Change:
    def change(case: Case) -> None:
        case.trust = dataclasses.replace(case.trust, **changes)  # type: ignore[arg-type]  # named below

    return change


def host(**changes: object) -> Change:
    def change(case: Case) -> None:
        case.host = host_state(**changes)  # type: ignore[arg-type]  # named below

    return change


def admitted(**fields: object) -> Change:
    """The gate's key and log are in a thief's hands: he admits what he likes."""

    def change(case: Case) -> None:
        case.bundle = case.gate.bundle(case.gate.admit(case.gate.statement(**fields)))

    return change


def signed_text(edit: Callable[[bytes], bytes]) -> Change:
    """The thief signs and logs a text that no honest program writes."""

    def change(case: Case) -> None:
        payload = parse_envelope(case.bundle.envelope).payload
        case.bundle = dataclasses.replace(
            case.bundle, envelope=case.gate.sign(edit(payload))
        )

    return change


def envelope_text(edit: Callable[[bytes], bytes]) -> Change:
    def change(case: Case) -> None:
        case.bundle = dataclasses.replace(
            case.bundle, envelope=edit(case.bundle.envelope)
        )

    return change


def predicate(**fields: object) -> Callable[[bytes], bytes]:
    def edit(payload: bytes) -> bytes:
        document = json.loads(payload)
        document["predicate"] |= fields
        return json.dumps(document).encode()

    return edit


def wrong_key(case: Case) -> None:
    payload = parse_envelope(case.bundle.envelope).payload
    forged = case.gate.sign(payload, (PrivateKey.generate(),))
    case.bundle = dataclasses.replace(case.bundle, envelope=forged)


def unsigned(case: Case) -> None:
    envelope = parse_envelope(case.bundle.envelope)
    bare = render_envelope(dataclasses.replace(envelope, signatures=()))
    case.bundle = dataclasses.replace(case.bundle, envelope=bare)


def one_key_twice(case: Case) -> None:
    key, second = case.gate.gate_key(), PrivateKey.generate()
    epoch = dataclasses.replace(
        case.trust.epochs[0], keys=(key.public, second.public), threshold=2
    )
    case.trust = dataclasses.replace(case.trust, epochs=(epoch,))
    payload = parse_envelope(case.bundle.envelope).payload
    twice = case.gate.sign(payload, (key, key))
    case.bundle = dataclasses.replace(case.bundle, envelope=twice)


def other_epochs_key(case: Case) -> None:
    admission = case.gate.admit(case.gate.statement(), keys=(case.gate.gate_key(2),))
    case.bundle = case.gate.bundle(admission)


def other_tasks_proof(case: Case) -> None:
    other = case.gate.admit(case.gate.statement(task_id="task-2"))
    case.bundle = dataclasses.replace(case.bundle, proof=other.proof)


def other_logs_checkpoint(case: Case) -> None:
    """The same tree under a log key that the release does not name."""
    case.gate.log_key = PrivateKey.generate()
    case.bundle = case.gate.bundle(case.gate.admit(case.gate.statement()))


def own_path_newer_checkpoint(case: Case) -> None:
    """The path of the old tree with the checkpoint of a larger one."""
    head, _, _ = case.bundle.proof.partition(b"\n\n")
    for number in range(9):
        case.gate.log(b"more %d" % number)
    proof = head + b"\n\n" + case.gate.checkpoint()
    case.bundle = dataclasses.replace(case.bundle, proof=proof)


def size_plus_one(case: Case) -> None:
    """A proof does not bind the size (signing-audit §3.1); the signature does."""
    size = case.gate.tree.size
    proof = case.bundle.proof.replace(b"\n%d\n" % size, b"\n%d\n" % (size + 1))
    assert proof != case.bundle.proof
    case.bundle = dataclasses.replace(case.bundle, proof=proof)


def revoked(denied: RevocationFile) -> Change:
    def change(case: Case) -> None:
        directory = case.gate.root.directory
        revoke(directory, denied, NOW)
        root = (directory / "root.json").read_bytes()
        case.trust = load_trust(read_release(directory), root, NOW, installed=INSTALLED)

    return change


FORGERIES: dict[str, tuple[Change, str]] = {
    # sizes and form
    "oversized envelope": (envelope_text(lambda e: e + b" " * 2**17), "STO-A057"),
    "oversized statement": (
        signed_text(lambda p: p[:-1] + b" " * 2**16 + b"}"),
        "STO-A002",
    ),
    "envelope that is no JSON": (envelope_text(lambda e: e[:-1]), "STO-A002"),
    "duplicate keys in the envelope": (
        envelope_text(lambda e: e.replace(b"{", b'{"payload":"",', 1)),
        "STO-A002",
    ),
    "duplicate keys in the statement": (
        signed_text(lambda p: p.replace(b'"attempt":1', b'"attempt":1,"attempt":1')),
        "STO-A002",
    ),
    "float": (
        signed_text(lambda p: p.replace(b'"attempt":1', b'"attempt":1.0')),
        "STO-A002",
    ),
    "deep nesting": (signed_text(lambda _: b"[" * 99 + b"]" * 99), "STO-A002"),
    "empty proof": (bundle(proof=b""), "STO-A057"),
    "oversized proof": (bundle(proof=b" " * (BOUNDS.proof_bytes + 1)), "STO-A057"),
    "oversized source": (bundle(task_module=b" " * (2**18 + 1)), "STO-A057"),
    "endless blobs": (bundle(blobs=(b"",) * 65), "STO-A020"),
    # signatures
    "wrong key": (wrong_key, "STO-A006"),
    "unsigned": (unsigned, "STO-A007"),
    "one key twice against threshold 2": (one_key_twice, "STO-A007"),
    "another payload type": (
        envelope_text(lambda e: e.replace(b"in-toto", b"another")),
        "STO-A004",
    ),
    "key of another epoch": (other_epochs_key, "STO-A043"),
    "malformed statement": (signed_text(predicate(attempt=0)), "STO-A011"),
    "unknown critical field": (signed_text(predicate(critical=["x"])), "STO-A032"),
    "another kind of statement": (
        signed_text(lambda p: p.replace(b"task-admission:v1", b"task-admission:v2")),
        "STO-A004",
    ),
    "swapped validator digest": (
        signed_text(predicate(validator_module=OTHER)),
        "STO-A011",
    ),
    # log proof
    "other task's proof": (other_tasks_proof, "STO-L020"),
    "checkpoint of another log": (other_logs_checkpoint, "STO-L011"),
    "proof against another checkpoint": (own_path_newer_checkpoint, "STO-L020"),
    "size + 1": (size_plus_one, "STO-L012"),
    "signed but never logged": (
        signed_text(predicate(seed=OTHER)),
        "STO-L020",
    ),
    # identity and digests
    "other project": (admitted(origin="elsewhere.example/log"), "STO-A020"),
    "other task": (bundle(task_id="task-2"), "STO-A020"),
    "other attempt": (bundle(attempt=2), "STO-A020"),
    "swapped task module": (bundle(task_module=MODULE + b"#"), "STO-A020"),
    "swapped arguments": (bundle(arguments=b"others"), "STO-A020"),
    "blob left out": (bundle(blobs=BLOBS[:1]), "STO-A020"),
    "swapped blob": (bundle(blobs=(BLOBS[0], b"x")), "STO-A020"),
    "blob list reordered": (bundle(blobs=BLOBS[::-1]), "STO-A020"),
    "level raised by the app": (bundle(app_level="numeric"), "STO-A020"),
    "older level file": (admitted(level_digest=OTHER), "STO-A032"),
    "unknown level": (
        lambda case: (
            admitted(level="omnipotent")(case),
            bundle(app_level="omnipotent")(case),
        )[0],
        "STO-A032",
    ),
    "other language layer": (admitted(language_digest=OTHER), "STO-A032"),
    "other Python": (admitted(python="3.12"), "STO-A032"),
    "other codec": (admitted(codec=2), "STO-A032"),
    "policy nobody signed": (admitted(policy_digest=OTHER), "STO-A006"),
    # expiry
    "expired": (lambda case: setattr(case, "now", NOW + DAY_S + 1), "STO-A040"),
    "endless life": (admitted(not_after=NOW + 14 * DAY_S + 1), "STO-A043"),
    "life that ends before it begins": (admitted(not_after=NOW), "STO-A043"),
    "admitted in the future": (
        admitted(admitted_at=NOW + 2 * DAY_S, not_after=NOW + 3 * DAY_S),
        "STO-A042",
    ),
    "before its epoch": (
        admitted(admitted_at=NOW - 2 * DAY_S, not_after=NOW + 60),
        "STO-A043",
    ),
    # revocations
    "revoked epoch": (revoked(RevocationFile(epochs=(1,))), "STO-A043"),
    "denied digest": (
        revoked(RevocationFile(digests=(content_digest(MODULE),))),
        "STO-A046",
    ),
    # floors
    "epoch below the release's floor": (
        revoked(RevocationFile(min_epoch=2)),
        "STO-A047",
    ),
    "root below the host's floor": (host(floors=Floors(root=2)), "STO-A047"),
    "revocations below the host's floor": (
        host(floors=Floors(revocation=99)),
        "STO-A047",
    ),
    "shorter log than at release": (host(floors=Floors(log_size=99)), "STO-A047"),
    # opt-in
    "level above opt-in": (
        lambda case: (
            admitted(level="numeric", level_digest=NUMERIC.digest)(case),
            bundle(app_level="numeric")(case),
        )[0],
        "STO-A050",
    ),
    "not reviewed": (host(require_review=True), "STO-A050"),
    "source not public": (host(require_public_source=True), "STO-A050"),
    "topic not chosen": (host(topics=frozenset({"health"})), "STO-A050"),
    "review by nobody": (admitted(reviewers=("{}",)), "STO-A002"),
}


def test_honest_admission_is_verified(gate: GateBench) -> None:
    case = honest(gate)
    task = verify_bundle(case.bundle, case.trust, case.host, case.now)
    assert (task.task_module, task.arguments, task.blobs) == (MODULE, ARGUMENTS, BLOBS)
    assert task.level is INSTALLED.levels[0]


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery_is_refused_with_its_code(gate: GateBench, name: str) -> None:
    change, code = FORGERIES[name]
    case = honest(gate)
    change(case)
    with pytest.raises(StoiloError) as caught:
        verify_bundle(case.bundle, case.trust, case.host, case.now)
    assert caught.value.code == code, str(caught.value)


def test_swapped_validator_module_is_refused_on_the_server(gate: GateBench) -> None:
    statement = gate.statement()
    check_validator_module(statement, VALIDATOR)
    with pytest.raises(StoiloError, match="STO-A024"):
        check_validator_module(statement, VALIDATOR + b"#")


def test_any_flipped_byte_of_the_admission_is_refused(gate: GateBench) -> None:
    case = honest(gate)
    for part in ("envelope", "proof"):
        whole = getattr(case.bundle, part)
        for at in range(0, len(whole), 7):
            damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
            forged = dataclasses.replace(case.bundle, **{part: damaged})
            try:
                verify_bundle(forged, case.trust, case.host, case.now)
            except StoiloError:
                continue
            # Only a hint that decides nothing (key id) may change unnoticed.
            assert part == "envelope"
            assert parse_envelope(damaged).payload == parse_envelope(whole).payload


def test_first_failing_stage_names_the_refusal(gate: GateBench) -> None:
    """Sizes, signatures, proof, digests, expiry, revocations, floors, opt-in."""
    stages = [
        "not reviewed",
        "revoked epoch",
        "expired",
        "swapped task module",
        "other task's proof",
        "wrong key",
        "oversized source",
    ]
    case = honest(gate)
    for name in stages:
        change, code = FORGERIES[name]
        change(case)
        with pytest.raises(StoiloError) as caught:
            verify_bundle(case.bundle, case.trust, case.host, case.now)
        assert caught.value.code == code, name


def test_admission_of_another_gate_is_refused(tmp_path: Path, gate: GateBench) -> None:
    stranger = GateBench(tmp_path / "stranger")
    forged: Admitted = stranger.admit(stranger.statement())
    with pytest.raises(StoiloError, match="STO-A006"):
        verify_bundle(gate.bundle(forged), gate.root.trust, HOST, NOW)


CONTROLS = {
    "_check_identity": ("other project", "other task", "other attempt", "other codec"),
    "check_times": ("expired", "endless life", "before its epoch"),
    "check_revocations": ("revoked epoch", "denied digest"),
    "check_floors": ("root below the host's floor", "shorter log than at release"),
    "_check_opt_in": ("level above opt-in", "not reviewed", "topic not chosen"),
}


@pytest.mark.parametrize(
    ("check", "name"), [(check, name) for check in CONTROLS for name in CONTROLS[check]]
)
def test_without_its_check_the_forgery_would_pass(
    gate: GateBench, monkeypatch: pytest.MonkeyPatch, check: str, name: str
) -> None:
    """The negative control: each refusal is this check's doing and no other's."""
    monkeypatch.setattr(admission, check, lambda *_: None)
    case = honest(gate)
    FORGERIES[name][0](case)
    assert verify_bundle(case.bundle, case.trust, case.host, case.now)
