import dataclasses
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoilo
from stoilo.audit.format.note import (
    KeyType,
    Note,
    cosign_note,
    parse_note,
    private_vkey,
    render_note,
    render_vkey,
)
from stoilo.audit.format.policy import parse_policy
from stoilo.audit.format.proof import (
    LeafKind,
    ProvenLeaf,
    parse_leaf,
    parse_proof,
    render_proof,
)
from stoilo.core.codebook import load_codebook
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.core.statement import (
    join_revocations,
    render_statement,
    split_revocations,
    statement_digest,
)
from stoilo.core.types import RunLimits
from stoilo.executor.verifier.admission import (
    admission_leaf,
    check_times,
    verify_admission,
)
from stoilo.executor.verifier.statements import (
    ANY_ARGUMENTS,
    Review,
    check_reviews,
    digest_arguments,
    sign_review,
)
from stoilo.executor.verifier.targets import RevocationFile, TrustedRelease
from stoilo.executor.verifier.trust import load_trust
from stoilo.executor.verifier.workunit import HostState, InputFile, VerifiedTask
from stoilo.signer.development.changes import (
    publish_reviewers,
    revoke,
    without_reviewer,
)
from stoilo.signer.release_pack import read_release
from tests.support.gate import (
    ARGUMENTS,
    BLOBS,
    DAY_S,
    FLAVOR,
    MODULE,
    NOW,
    OWN,
    GateBench,
    TaskBundle,
    host_state,
    verify_bundle,
)

HOST = host_state()


@pytest.fixture(scope="module")
def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> GateBench:
    return GateBench(tmp_path_factory.mktemp("shared") / "root")


def run(gate: GateBench, bundle: TaskBundle, host: HostState = HOST) -> VerifiedTask:
    return verify_bundle(bundle, gate.root.trust, host, NOW)


def in_files(folder: Path, bundle: TaskBundle) -> TaskBundle:
    paths = [folder / name for name in ("module", "arguments", "blob0", "blob1")]
    for path, data in zip(paths, (MODULE, ARGUMENTS, *BLOBS), strict=True):
        path.write_bytes(data)
    return dataclasses.replace(
        bundle, task_module=paths[0], arguments=paths[1], blobs=tuple(paths[2:])
    )


def test_inputs_may_be_files(tmp_path: Path, gate: GateBench) -> None:
    bundle = in_files(tmp_path, gate.bundle(gate.admit(gate.statement())))
    assert run(gate, bundle).blobs == BLOBS


def opened() -> set[tuple[str, str]]:
    """Return number and target of each descriptor; other threads may close theirs."""
    found = set()
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):
            found.add((path.name, str(path.readlink())))
    return found


def test_no_descriptor_stays_open(tmp_path: Path, gate: GateBench) -> None:
    bundle = in_files(tmp_path, gate.bundle(gate.admit(gate.statement())))
    before = opened()
    run(gate, bundle)
    with pytest.raises(TrustError):
        run(gate, dataclasses.replace(bundle, blobs=(*bundle.blobs, tmp_path / "no")))
    assert opened() <= before


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "missing"])
def test_input_that_is_no_plain_file_is_refused(
    tmp_path: Path, gate: GateBench, kind: str
) -> None:
    bundle = in_files(tmp_path, gate.bundle(gate.admit(gate.statement())))
    path = tmp_path / kind
    if kind == "link":
        path.symlink_to(tmp_path / "module")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(TrustError, match="STO-A057"):
        run(gate, dataclasses.replace(bundle, task_module=path))


def test_file_exchanged_after_opening_is_not_what_is_used(tmp_path: Path) -> None:
    path = tmp_path / "module"
    path.write_bytes(MODULE)
    with InputFile(path, max_bytes=100, what="the module") as opened:
        path.rename(tmp_path / "old")
        path.write_bytes(b"import evil\n")
        assert opened.read() == MODULE


def test_file_that_grows_while_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "module"
    path.write_bytes(MODULE)
    with InputFile(path, max_bytes=100, what="the module") as opened:
        path.write_bytes(MODULE * 2)
        with pytest.raises(TrustError, match="STO-A057"):
            opened.read()


def test_source_is_not_read_before_signature_and_proof_hold(
    tmp_path: Path, gate: GateBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = in_files(tmp_path, gate.bundle(gate.admit(gate.statement())))
    read: list[str] = []
    honest = InputFile.read
    monkeypatch.setattr(
        InputFile, "read", lambda one: read.append(one._what) or honest(one)
    )
    with pytest.raises(TrustError, match="STO-L0"):
        run(gate, dataclasses.replace(bundle, proof=bundle.proof[:-9] + b"AAAAAAA=\n"))
    assert read == ["admission", "proof"]


def test_leaf_is_computed_from_the_statement_alone(gate: GateBench) -> None:
    statement = gate.statement()
    payload = gate.admit(statement).payload
    leaf = parse_leaf(admission_leaf(statement, payload))
    assert leaf.kind is LeafKind.ADMISSION
    assert (leaf.digest, leaf.time) == (statement_digest(payload), NOW)


def test_limits_in_force_are_the_lowest_of_admission_level_and_opt_in(
    gate: GateBench,
) -> None:
    wanted = RunLimits(cpu_s=7, wall_s=10**6, memory_bytes=2**40)
    bundle = gate.bundle(gate.admit(gate.statement(limits=wanted)))
    own = dataclasses.replace(RunLimits(), memory_bytes=5)
    limits = run(gate, bundle, host_state(limits=own)).limits
    assert (limits.cpu_s, limits.wall_s, limits.memory_bytes) == (7, 120, 5)


def test_runtime_is_chosen_among_those_held_by_the_signed_flavor(
    gate: GateBench,
) -> None:
    bundle = gate.bundle(gate.admit(gate.statement()))
    assert run(gate, bundle, host_state(flavors=frozenset({"00" * 32, FLAVOR})))
    with pytest.raises(PolicyRefusal, match="STO-X013"):
        run(gate, bundle, host_state(flavors=frozenset({"00" * 32})))


def test_witnessed_time_counts_when_the_host_clock_is_behind(gate: GateBench) -> None:
    admitted = gate.admit(gate.statement())
    admission = verify_admission(admitted.envelope, admitted.proof, gate.root.trust)
    late = admission.statement.not_after + 1
    check_times(admission, NOW)
    with pytest.raises(TrustError, match="STO-A040"):
        check_times(admission, late)


def test_checkpoint_cosigned_outside_the_epoch_is_refused(gate: GateBench) -> None:
    admitted = gate.admit(gate.statement())
    admission = verify_admission(admitted.envelope, admitted.proof, gate.root.trust)
    early = admission.epoch.not_before - 1
    proven = ProvenLeaf(0, 1, b"", early)
    with pytest.raises(TrustError, match="STO-A043"):
        check_times(dataclasses.replace(admission, proven=proven), NOW)


def witnessed(gate: GateBench, time: int) -> tuple[TaskBundle, TrustedRelease]:
    """Return a workunit whose checkpoint a witness cosigned, under a policy to match."""
    key, admitted = PrivateKey.generate().key, gate.admit(gate.statement())
    vkey = render_vkey(private_vkey("w.example/1", KeyType.COSIGNATURE, key))
    text = f"log {gate.root.log_vkey}\nwitness w {vkey}\nquorum w\n"

    def cosign(text: bytes) -> bytes:
        proof = parse_proof(text)
        note = parse_note(proof.checkpoint)
        cosigned = cosign_note(note.text, "w.example/1", key, time)
        checkpoint = render_note(Note(note.text, (*note.signatures, cosigned)))
        return render_proof(dataclasses.replace(proof, checkpoint=checkpoint))

    signed, revocations = split_revocations(gate.revocations)
    bundle = dataclasses.replace(
        gate.bundle(admitted),
        proof=cosign(admitted.proof),
        revocations=join_revocations(signed, cosign(revocations)),
    )
    policy = parse_policy(text.encode())
    return bundle, dataclasses.replace(gate.root.trust, log_policy=policy)


def test_witnessed_admission_runs(gate: GateBench) -> None:
    bundle, trust = witnessed(gate, NOW + 5)
    task = verify_bundle(bundle, trust, HOST, NOW)
    assert task.admission.proven.checkpoint_time == NOW + 5


def test_witness_that_saw_it_after_its_end_shows_the_clock_wrong(
    gate: GateBench,
) -> None:
    bundle, trust = witnessed(gate, NOW + 2 * DAY_S)
    with pytest.raises(TrustError, match="STO-A040"):
        verify_bundle(bundle, trust, HOST, NOW)


def test_time_that_this_host_has_verified_once_counts(gate: GateBench) -> None:
    bundle = gate.bundle(gate.admit(gate.statement()))
    assert run(gate, bundle, host_state(newest_time=NOW + DAY_S))
    with pytest.raises(TrustError, match="STO-A040"):
        run(gate, bundle, host_state(newest_time=NOW + DAY_S + 1))


def test_checkpoint_without_the_witness_quorum_is_refused(gate: GateBench) -> None:
    _, trust = witnessed(gate, NOW)
    plain = gate.bundle(gate.admit(gate.statement()))
    with pytest.raises(TrustError, match="STO-L013"):
        verify_bundle(plain, trust, HOST, NOW)


@given(st.data())
def test_damaged_text_under_a_stolen_key_ends_in_our_error(
    shared_gate: GateBench, data: st.DataObject
) -> None:
    good = bytearray(render_statement(shared_gate.statement()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    envelope = shared_gate.sign(bytes(good))
    proof = data.draw(st.binary(max_size=99) | st.just(shared_gate.log(b"x")))
    with pytest.raises(StoiloError):
        verify_admission(envelope, proof, shared_gate.root.trust)


def review(gate: GateBench, **changes: object) -> str:
    statement = gate.statement()
    key = changes.pop("key", None)
    if not isinstance(key, PrivateKey):
        key = gate.reviewer_key
    fields: dict[str, object] = {
        "task_module": statement.task_module,
        "validator_module": statement.validator_module,
        "level": "pure",
        "flavor": statement.flavor,
        "limits": RunLimits(),
        "arguments": ANY_ARGUMENTS,
        "not_after": NOW + 100,
    }
    return sign_review(Review(**(fields | changes)), key)  # type: ignore[arg-type]  # named by tests


def test_reviewed_task_runs_where_review_is_required(gate: GateBench) -> None:
    bundle = gate.bundle(gate.admit(gate.statement(reviewers=(review(gate),))))
    assert run(gate, bundle, host_state(require_review=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"key": PrivateKey.generate()},
        {"level": "numeric"},
        {"task_module": "00" * 32},
        {"validator_module": "00" * 32},
        {"flavor": "00" * 32},
        {"arguments": "00" * 32},
        {"limits": dataclasses.replace(RunLimits(), cpu_s=1)},
        {"not_after": NOW - 1},
    ],
)
def test_review_that_does_not_hold_is_refused(
    gate: GateBench, changes: dict[str, object]
) -> None:
    text = review(gate, **changes)
    bundle = gate.bundle(gate.admit(gate.statement(reviewers=(text,))))
    with pytest.raises(TrustError, match="STO-A055"):
        run(gate, bundle)


def test_nobody_reviews_himself(gate: GateBench) -> None:
    own = gate.statement(reviewers=(review(gate),), submitter=OWN)
    with pytest.raises(TrustError, match="STO-A055"):
        run(gate, gate.bundle(gate.admit(own)))


def test_reviewed_arguments_are_those_with_their_blobs(gate: GateBench) -> None:
    """Arguments name blobs by place: another blob is another argument."""
    statement = gate.statement()
    exact = digest_arguments(statement.arguments, statement.blobs)
    reviewed = gate.statement(reviewers=(review(gate, arguments=exact),))
    assert run(gate, gate.bundle(gate.admit(reviewed)))
    for wrong in (statement.arguments, digest_arguments(statement.arguments, ())):
        text = review(gate, arguments=wrong)
        bundle = gate.bundle(gate.admit(gate.statement(reviewers=(text,))))
        with pytest.raises(TrustError, match="STO-A055"):
            run(gate, bundle)


def test_policy_that_demands_a_review_is_held_to_by_the_executor(
    tmp_path: Path,
) -> None:
    """The gate's key alone does not get around a review that the policy role demands."""
    gate = GateBench(tmp_path / "r", reviewed=("pure",))
    without = gate.bundle(gate.admit(gate.statement()))
    with pytest.raises(TrustError, match="STO-A055"):
        run(gate, without)
    reviewed = gate.statement(reviewers=(review(gate),))
    assert run(gate, gate.bundle(gate.admit(reviewed)))
    other = gate.statement(level="numeric")
    assert not gate.root.trust.needs_review(other.policy_digest, other.level)


@pytest.mark.parametrize("how", ["reviewers role", "revocation role"])
def test_withdrawn_reviewer_counts_no_more(gate: GateBench, how: str) -> None:
    bundle = gate.bundle(gate.admit(gate.statement(reviewers=(review(gate),))))
    key, folder = gate.reviewer_key.public.raw.hex(), gate.root.directory
    assert run(gate, bundle)
    if how == "reviewers role":
        publish_reviewers(folder, lambda named: without_reviewer(named, key), NOW)
    else:
        revoke(folder, RevocationFile(digests=(key,)), NOW)
    trust = load_trust(
        read_release(folder),
        gate.root.root_file.read_bytes(),
        NOW,
        installed=gate.installed,
    )
    with pytest.raises(TrustError, match="STO-A055"):
        verify_bundle(bundle, trust, HOST, NOW)


def test_two_reviews_by_one_reviewer_count_once(gate: GateBench) -> None:
    statement = gate.statement(reviewers=(review(gate), review(gate)))
    assert check_reviews(statement, gate.root.trust.reviewers, NOW) == 1


def test_one_reviews_signature_is_no_admission(gate: GateBench) -> None:
    """One key, one use: payload types keep documents apart."""
    text = review(gate, key=gate.gate_key())
    admitted = gate.admit(gate.statement())
    bundle = dataclasses.replace(gate.bundle(admitted), envelope=text.encode())
    with pytest.raises(TrustError, match="STO-A004"):
        run(gate, bundle)


def test_every_code_raised_here_has_its_page() -> None:
    book = load_codebook()
    for part in ("executor", "signer", "core"):
        for path in (Path(stoilo.__file__).parent / part).rglob("*.py"):
            for code in re.findall(r"STO-[AK][0-9]{3}", path.read_text()):
                assert code in book, f"{code} in {path.name}"


def test_errors_are_all_ours(gate: GateBench) -> None:
    for envelope, proof in ((b"", b""), (b"\xff", b"\xff"), (b"{}", b"x")):
        with pytest.raises(StoiloError):
            verify_admission(envelope, proof, gate.root.trust)
