from pathlib import Path

import pytest

from stoilo.core.ed25519 import PrivateKey
from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.release.targets import ReviewerKey
from stoilo.executor.verifier.release.trust import load_trust
from stoilo.signer.development.lists import (
    enroll_reviewer,
    list_reviewers,
    withdraw_reviewer,
)
from stoilo.signer.development.root import create_development_root
from tests.support.gate import INSTALLED, NOW

KEY = PrivateKey.generate().public.raw.hex()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create_development_root(
        tmp_path / "r", "project.example/log", NOW, installed=INSTALLED
    )
    return tmp_path / "r"


def trusted(root: Path) -> list[str]:
    trust = load_trust(
        root, (root / "root.json").read_bytes(), NOW, installed=INSTALLED
    )
    return [one.name for one in trust.reviewers]


def test_new_root_names_nobody(root: Path) -> None:
    assert (list_reviewers(root), trusted(root)) == ((), [])


def test_enrolled_reviewer_is_known_until_withdrawn(root: Path) -> None:
    enroll_reviewer(root, ReviewerKey(KEY, "ann"), NOW)
    assert trusted(root) == ["ann"]
    withdraw_reviewer(root, KEY, NOW)
    assert trusted(root) == []


def test_same_key_again_replaces_the_entry(root: Path) -> None:
    enroll_reviewer(root, ReviewerKey(KEY, "ann"), NOW)
    enroll_reviewer(root, ReviewerKey(KEY, "anna", ("00" * 32,)), NOW)
    assert [one.name for one in list_reviewers(root)] == ["anna"]


def test_renewed_root_keeps_its_reviewers(root: Path) -> None:
    enroll_reviewer(root, ReviewerKey(KEY, "ann"), NOW)
    create_development_root(root, "project.example/log", NOW + 60, installed=INSTALLED)
    assert trusted(root) == ["ann"]


def test_weak_key_is_refused(root: Path) -> None:
    with pytest.raises(TrustError, match="STO-K0"):
        enroll_reviewer(root, ReviewerKey("00" * 32, "weak"), NOW)


def test_unknown_key_cannot_be_withdrawn(root: Path) -> None:
    with pytest.raises(UsageError, match="STO-K030"):
        withdraw_reviewer(root, KEY, NOW)


def test_file_by_another_role_does_not_count(root: Path) -> None:
    """The role's own offline key names the reviewers, not the online one."""
    enroll_reviewer(root, ReviewerKey(KEY, "ann"), NOW)
    stolen = (root / "online" / "online.pem").read_bytes()
    (root / "offline" / "reviewers.pem").write_bytes(stolen)
    with pytest.raises(TrustError, match="STO-K012"):
        enroll_reviewer(root, ReviewerKey(KEY, "thief"), NOW)
