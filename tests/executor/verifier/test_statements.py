"""A workunit's revocation statement: genuine, logged, fresh, and never less than seen."""

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.audit.format.proof import ProvenLeaf
from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.signatures import PrivateKey
from stoilo.core.statement import join_revocations, split_revocations
from stoilo.executor.verifier import admission, statements
from stoilo.executor.verifier.statements import (
    SeenRevocations,
    check_revocation_age,
    in_force,
    newest_seen,
    open_revocations,
)
from stoilo.executor.verifier.targets import RevocationFile, TrustedRelease
from stoilo.executor.verifier.trust import load_trust
from stoilo.executor.verifier.workunit import HostState
from stoilo.signer.development.changes import revoke
from stoilo.signer.release_pack import read_release
from tests.support.gate import (
    DAY_S,
    FLAVOR,
    INSTALLED,
    MODULE,
    NOW,
    GateBench,
    host_state,
    verify_bundle,
)

OTHER = content_digest(b"something else")


def run(gate: GateBench, file: bytes, host: HostState | None = None) -> None:
    bundle = gate.bundle(gate.admit(gate.statement()), revocations=file)
    verify_bundle(bundle, gate.root.trust, host or host_state(), NOW)


def seen_by(gate: GateBench, **changes: object) -> SeenRevocations:
    keys = tuple(key.raw.hex() for key in gate.root.trust.revocation_keys)
    return SeenRevocations(gate.revocation(**changes), keys)


def settled(gate: GateBench, **fields: object) -> TrustedRelease:
    directory = gate.root.directory
    revoke(directory, RevocationFile(**fields), NOW)  # type: ignore[arg-type]  # named by tests
    root = (directory / "root.json").read_bytes()
    return load_trust(read_release(directory), root, NOW, installed=INSTALLED)


def forged(gate: GateBench) -> bytes:
    return gate.revoke_online(keys=(PrivateKey.generate(),))


def by_gate_key(gate: GateBench) -> bytes:
    return gate.revoke_online(keys=(gate.gate_key(),))


def unlogged(gate: GateBench) -> bytes:
    signed, _ = split_revocations(gate.revoke_online(sequence=2))
    _, proof = split_revocations(gate.revocations)
    return join_revocations(signed, proof)


def without_proof(gate: GateBench) -> bytes:
    return join_revocations(split_revocations(gate.revocations)[0], b"")


def other_log(gate: GateBench) -> bytes:
    gate.log_key = PrivateKey.generate()
    return gate.revoke_online()


FORGERIES: dict[str, tuple[Callable[[GateBench], bytes], str]] = {
    "missing": (lambda _: b"", "STO-A071"),
    "endless": (lambda _: b" " * 2**20, "STO-A057"),
    "another form": (lambda gate: gate.revocations[1:], "STO-A071"),
    "envelope that is no JSON": (
        lambda gate: gate.revocations.replace(b'{"', b"{", 1),
        "STO-A071",
    ),
    "offline list passed off as a statement": (
        lambda gate: gate.revoke_online(issuer="offline"),
        "STO-A071",
    ),
    "unknown key": (forged, "STO-A071"),
    "key of the gate": (by_gate_key, "STO-A071"),
    "an admission passed off as revocations": (
        lambda gate: join_revocations(
            gate.admit(gate.statement()).envelope, gate.log(b"x")
        ),
        "STO-A071",
    ),
    "signed but never logged": (unlogged, "STO-A071"),
    "without proof": (without_proof, "STO-A071"),
    "under another log's checkpoint": (other_log, "STO-L011"),
    "a day and a second older than its admission": (
        lambda gate: gate.revoke_online(time=NOW - DAY_S - 1),
        "STO-A074",
    ),
    "from the future": (
        lambda gate: gate.revoke_online(time=NOW + DAY_S + 1),
        "STO-A074",
    ),
    "on an offline list that is withheld": (
        lambda gate: gate.revoke_online(base=gate.root.trust.revocation_version + 1),
        "STO-A071",
    ),
    "another project's": (
        lambda gate: gate.revoke_online(origin="elsewhere.example/log"),
        "STO-A071",
    ),
    "withdrawn epoch": (lambda gate: gate.revoke_online(epochs=(1,)), "STO-A043"),
    "withdrawn source": (
        lambda gate: gate.revoke_online(digests=(content_digest(MODULE),)),
        "STO-A046",
    ),
    "lowest epoch": (lambda gate: gate.revoke_online(min_epoch=2), "STO-A047"),
    "withdrawn flavor": (
        lambda gate: gate.revoke_online(flavors=(FLAVOR,)),
        "STO-A046",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_work_is_refused_with_its_own_code(gate: GateBench, name: str) -> None:
    make, code = FORGERIES[name]
    run(gate, gate.revocations)
    with pytest.raises(TrustError, match=code):
        run(gate, make(gate))


def test_work_with_a_statement_a_day_old_runs(gate: GateBench) -> None:
    run(gate, gate.revoke_online(time=NOW - DAY_S))


def test_statement_about_others_stops_nothing(gate: GateBench) -> None:
    run(gate, gate.revoke_online(epochs=(9,), digests=(OTHER,), flavors=(OTHER,)))


def test_control_without_the_check_each_forgery_runs(
    gate: GateBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stops these forgeries is this check and no other."""

    def believe(*_: object) -> TrustedRelease:
        return gate.root.trust

    logged = open_revocations(gate.revocations, gate.root.trust)
    monkeypatch.setattr(admission, "open_revocations", lambda *_: logged)
    monkeypatch.setattr(admission, "_check_statement", believe)
    for name, (make, _) in FORGERIES.items():
        if name not in {"under another log's checkpoint", "endless"}:
            run(gate, make(gate))


@pytest.mark.parametrize(
    ("seen", "file", "code"),
    [
        ({"sequence": 2, "epochs": (9,)}, {"sequence": 3}, "STO-A076"),
        ({"sequence": 2}, {"sequence": 1, "epochs": (9,)}, "STO-A076"),
        ({"sequence": 2, "epochs": (9,)}, {"sequence": 2}, "STO-A076"),
        ({"sequence": 2, "time": NOW - 1}, {"sequence": 1}, "STO-A076"),
        ({"sequence": 2, "epochs": (1,)}, {"sequence": 1, "time": NOW - 5}, "STO-A043"),
    ],
)
def test_host_never_believes_less_than_it_has_seen(
    gate: GateBench, seen: dict[str, object], file: dict[str, object], code: str
) -> None:
    host = host_state(revocations=seen_by(gate, **seen))
    with pytest.raises(TrustError, match=code):
        run(gate, gate.revoke_online(**file), host)


def test_work_that_waited_in_a_queue_runs_with_its_older_statement(
    gate: GateBench,
) -> None:
    host = host_state(revocations=seen_by(gate, sequence=9, time=NOW + 60))
    run(gate, gate.revocations, host)


def test_what_the_offline_role_settled_may_go(gate: GateBench) -> None:
    seen = seen_by(gate, sequence=4, digests=(content_digest(MODULE),))
    file = gate.revoke_online(sequence=5)
    with pytest.raises(TrustError, match="STO-A076"):
        run(gate, file, host_state(revocations=seen))
    trust = settled(gate, settled=4)
    bundle = gate.bundle(gate.admit(gate.statement()), revocations=file)
    assert verify_bundle(bundle, trust, host_state(revocations=seen), NOW)


def test_statement_added_after_the_settlement_stays(gate: GateBench) -> None:
    trust = settled(gate, settled=3)
    seen = seen_by(gate, sequence=4, epochs=(1,))
    with pytest.raises(TrustError, match="STO-A076"):
        newest_seen(seen, gate.revocation(sequence=5), trust)
    assert 1 in in_force(trust, seen.statement).revoked_epochs


def test_settled_statement_withdraws_no_more(gate: GateBench) -> None:
    statement = gate.revocation(sequence=4, epochs=(1,))
    assert 1 in in_force(gate.root.trust, statement).revoked_epochs
    assert 1 not in in_force(settled(gate, settled=4), statement).revoked_epochs


def test_used_up_numbers_are_forgotten_with_the_key_of_a_thief(gate: GateBench) -> None:
    seen = seen_by(gate, sequence=2**53 - 1)
    key = PrivateKey.generate()
    file = gate.revoke_online(keys=(key,), sequence=1)
    trust = settled(gate, keys=(key.public.raw.hex(),))
    statement = open_revocations(file, trust).statement
    assert newest_seen(seen, statement, trust).statement.sequence == 1
    old = gate.revoke_online(sequence=2**53 - 1)
    with pytest.raises(TrustError, match="STO-A071"):
        open_revocations(old, trust)


def test_reviewer_withdrawn_online_counts_no_more(gate: GateBench) -> None:
    (reviewer,) = gate.root.trust.reviewers
    statement = gate.revocation(digests=(reviewer.key.raw.hex(),))
    assert in_force(gate.root.trust, statement).reviewers == ()


def test_backdated_work_is_found_by_its_witnesses(gate: GateBench) -> None:
    """A thief may lie about `admitted_at`; the cosignature's time he does not make."""
    old, newer = gate.revocation(), gate.revocation(sequence=2, time=NOW + 100)
    times = {"admitted_at": NOW, "clock": NOW + 2 * DAY_S}
    check_revocation_age(old, checkpoint_time=NOW + 200, seen=newer, **times)  # type: ignore[arg-type]  # two of three
    with pytest.raises(TrustError, match="STO-A076"):
        check_revocation_age(old, checkpoint_time=NOW + 3800, seen=newer, **times)  # type: ignore[arg-type]  # as above
    late = NOW + DAY_S + 1
    with pytest.raises(TrustError, match="STO-A074"):
        check_revocation_age(old, checkpoint_time=late, seen=old, **times)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(("lag", "code"), [(3600, ""), (3601, "STO-A074")])
def test_statement_dated_after_its_own_witnesses_is_a_lie(
    gate: GateBench, monkeypatch: pytest.MonkeyPatch, lag: int, code: str
) -> None:
    proven = ProvenLeaf(0, 1, b"", NOW - lag)
    monkeypatch.setattr(statements, "prove_revocation", lambda *_: proven)
    try:
        open_revocations(gate.revocations, gate.root.trust)
    except TrustError as error:
        assert error.code == code
    else:
        assert not code


numbers = st.frozensets(st.integers(1, 6), max_size=3)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_statements_of_an_honest_issuer_are_believed_in_any_order(
    history: list[frozenset[int]], random: object
) -> None:
    gate, trust = shared()
    made, epochs = [], frozenset[int]()
    for number, added in enumerate(history, 1):
        epochs |= added
        made.append(gate.revocation(sequence=number, epochs=tuple(sorted(epochs))))
    arrived = list(made)
    random.shuffle(arrived)  # type: ignore[attr-defined]  # hypothesis' random
    seen = None
    for statement in arrived:
        before = None if seen is None else seen.statement
        seen = newest_seen(seen, statement, trust)
        assert before is None or seen.statement.covers(before)
    assert seen is not None
    assert seen.statement == made[-1]


@settings(deadline=None)
@given(numbers, numbers)
def test_statement_that_drops_something_is_never_believed(
    first: frozenset[int], second: frozenset[int]
) -> None:
    gate, trust = shared()
    seen = newest_seen(None, gate.revocation(epochs=tuple(sorted(first))), trust)
    new = gate.revocation(sequence=2, epochs=tuple(sorted(second)))
    if second >= first:
        assert newest_seen(seen, new, trust).statement == new
    else:
        with pytest.raises(StoiloError, match="STO-A076"):
            newest_seen(seen, new, trust)


_SHARED: list[GateBench] = []


@pytest.fixture(autouse=True, scope="module")
def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> None:
    _SHARED[:] = [GateBench(tmp_path_factory.mktemp("shared") / "root")]


def shared() -> tuple[GateBench, TrustedRelease]:
    return _SHARED[0], dataclasses.replace(_SHARED[0].root.trust)
