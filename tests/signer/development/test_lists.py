from pathlib import Path

import pytest

from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PrivateKey
from stoilo.core.statement import RevocationStatement, render_revocation
from stoilo.executor.verifier.statements import revocation_leaf
from stoilo.executor.verifier.targets import ReviewerKey, RevocationFile
from stoilo.executor.verifier.trust import load_trust
from stoilo.signer.development.changes import (
    certify_fresh_epoch,
    list_reviewers,
    offline_list,
    publish_reviewers,
    settle_list,
    settle_revocations,
    with_reviewer,
    without_reviewer,
)
from stoilo.signer.development.root import create_development_root
from stoilo.signer.process.protocol import RevocationSigned, SignRevocation
from stoilo.signer.process.service import SignerService
from stoilo.signer.release_pack import read_release
from tests.support.gate import DAY_S, INSTALLED, NOW, GateBench, epoch_at

KEY = PrivateKey.generate().public.raw.hex()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create_development_root(
        tmp_path / "r", "project.example/log", NOW, installed=INSTALLED
    )
    return tmp_path / "r"


def trusted(root: Path) -> list[str]:
    trust = load_trust(
        read_release(root), (root / "root.json").read_bytes(), NOW, installed=INSTALLED
    )
    return [one.name for one in trust.reviewers]


def test_new_root_names_nobody(root: Path) -> None:
    assert (list_reviewers(root), trusted(root)) == ((), [])


def test_enrolled_reviewer_is_known_until_withdrawn(root: Path) -> None:
    publish_reviewers(
        root, lambda named: with_reviewer(named, ReviewerKey(KEY, "ann")), NOW
    )
    assert trusted(root) == ["ann"]
    publish_reviewers(root, lambda named: without_reviewer(named, KEY), NOW)
    assert trusted(root) == []


def test_same_key_again_replaces_the_entry(root: Path) -> None:
    publish_reviewers(
        root, lambda named: with_reviewer(named, ReviewerKey(KEY, "ann")), NOW
    )
    publish_reviewers(
        root,
        lambda named: with_reviewer(named, ReviewerKey(KEY, "anna", ("00" * 32,))),
        NOW,
    )
    assert [one.name for one in list_reviewers(root)] == ["anna"]


def test_renewed_root_keeps_its_reviewers(root: Path) -> None:
    publish_reviewers(
        root, lambda named: with_reviewer(named, ReviewerKey(KEY, "ann")), NOW
    )
    create_development_root(root, "project.example/log", NOW + 60, installed=INSTALLED)
    assert trusted(root) == ["ann"]


def test_weak_key_is_refused(root: Path) -> None:
    with pytest.raises(TrustError, match="STO-K0"):
        publish_reviewers(
            root,
            lambda named: with_reviewer(named, ReviewerKey("00" * 32, "weak")),
            NOW,
        )


def test_unknown_key_cannot_be_withdrawn(root: Path) -> None:
    with pytest.raises(UsageError, match="STO-K054"):
        publish_reviewers(root, lambda named: without_reviewer(named, KEY), NOW)


def test_file_by_another_role_does_not_count(root: Path) -> None:
    """The role's own offline key names the reviewers, not the online one."""
    publish_reviewers(
        root, lambda named: with_reviewer(named, ReviewerKey(KEY, "ann")), NOW
    )
    stolen = (root / "online" / "online.pem").read_bytes()
    (root / "offline" / "reviewers.pem").write_bytes(stolen)
    with pytest.raises(TrustError, match="STO-K012"):
        publish_reviewers(
            root, lambda named: with_reviewer(named, ReviewerKey(KEY, "thief")), NOW
        )


OLD, NEW = "a" * 64, "b" * 64


def test_online_additions_are_taken_over(gate: GateBench) -> None:
    online = gate.revocation(sequence=5, epochs=(3,), digests=(OLD,), min_epoch=2)
    listed = settle_list(RevocationFile(epochs=(1,), settled=4), online)
    assert (listed.epochs, listed.digests, listed.min_epoch) == ((1, 3), (OLD,), 2)
    assert listed.settled == 5


def test_settled_additions_do_not_come_back(gate: GateBench) -> None:
    online = gate.revocation(sequence=5, digests=(OLD,))
    assert settle_list(RevocationFile(settled=5), online).digests == ()


def test_things_are_added_and_taken_back_at_once(gate: GateBench) -> None:
    listed = settle_list(
        RevocationFile(),
        gate.revocation(sequence=5, digests=(OLD,), flavors=(OLD,), min_epoch=3),
        add=gate.revocation(digests=(NEW,)),
        remove=gate.revocation(digests=(OLD,), flavors=(OLD,), min_epoch=3),
    )
    assert (listed.digests, listed.flavors, listed.min_epoch) == ((NEW,), (), 1)


@pytest.mark.parametrize(
    "gone",
    [{"epochs": (9,)}, {"digests": (NEW,)}, {"flavors": (NEW,)}, {"min_epoch": 4}],
)
def test_what_is_not_withdrawn_cannot_be_taken_back(
    gate: GateBench, gone: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match="STO-K054"):
        settle_list(
            RevocationFile(digests=(OLD,)), None, remove=gate.revocation(**gone)
        )


def sign(gate: GateBench, statement: RevocationStatement) -> None:
    signer = SignerService(gate.root.directory, clock=lambda: NOW)
    payload = render_revocation(statement)
    request = SignRevocation(payload, gate.log(revocation_leaf(payload)))
    assert isinstance(signer.answer(request), RevocationSigned)


def test_ceremony_publishes_the_list_for_volunteers(gate: GateBench) -> None:
    directory = gate.root.directory
    sign(gate, gate.revocation(sequence=2, digests=(OLD,)))
    settle_revocations(directory, NOW, remove=gate.revocation(digests=(OLD,)))
    root = (directory / "root.json").read_bytes()
    trust = load_trust(read_release(directory), root, NOW, installed=INSTALLED)
    assert (trust.denied, trust.revocations_settled) == (frozenset(), 2)
    assert trust.revocation_version == gate.root.trust.revocation_version + 1
    assert trust.revocation_keys == gate.root.trust.revocation_keys


def test_list_survives_a_renewal_of_the_release(gate: GateBench) -> None:
    settle_revocations(gate.root.directory, NOW, add=gate.revocation(digests=(OLD,)))
    gate._make_root(gate.root.directory, gate.root.origin)
    assert offline_list(gate.root.directory).digests == (OLD,)


def test_fresh_epoch_is_open_at_once_and_has_a_key_of_its_own(gate: GateBench) -> None:
    number = certify_fresh_epoch(gate.root.directory, NOW)
    renewed = gate._make_root(gate.root.directory, gate.root.origin).trust
    epoch = epoch_at(renewed, NOW, DAY_S)
    assert epoch is not None
    assert epoch.number == number > max(one.number for one in gate.root.trust.epochs)
    others = [one.keys for one in renewed.epochs if one.number != number]
    assert epoch.keys not in others
    assert gate.gate_key(number).public in epoch.keys


def test_taking_back_a_lowest_epoch_revives_none_below_an_earlier_one(
    gate: GateBench,
) -> None:
    wrong = gate.revocation(sequence=5, min_epoch=999)
    listed = settle_list(RevocationFile(min_epoch=3), wrong, remove=wrong)
    assert listed.min_epoch == 3
    assert settle_list(listed, None, remove=gate.revocation(min_epoch=3)).min_epoch == 1
