from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from stoilo.audit.witness.client import NO_WITNESSES
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.policies.policy import default_policy
from stoilo.server.release.released import (
    ServerTerms,
    check_certified,
    check_offline_roles,
    is_released,
)
from stoilo.signer.ceremony.release_status import read_roles
from stoilo.signer.development.root import create_development_root
from stoilo.signer.process.online_keys import make_online_keys
from tests.support.gate import INSTALLED, NOW, _one_witness
from tests.support.release import ReleasedProject

ORIGIN = "project.example/log"
POLICY = default_policy()
YEAR_S = 365 * 86_400


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ReleasedProject:
    folder = tmp_path_factory.mktemp("released") / "keys"
    made = ReleasedProject(folder, ORIGIN, INSTALLED, policies=(POLICY.digest,))
    made.publish(NOW)
    return made


@pytest.fixture(scope="module")
def trust(project: ReleasedProject) -> TrustedRelease:
    return project.trust(NOW)


def terms(project: ReleasedProject) -> ServerTerms:
    assert project.online is not None
    return ServerTerms("", project.online.log_vkey, NO_WITNESSES, POLICY)


def test_root_that_people_signed_is_released(project: ReleasedProject) -> None:
    assert is_released(project.directory)


def test_development_root_is_not(tmp_path: Path) -> None:
    create_development_root(tmp_path / "keys", ORIGIN, NOW, installed=INSTALLED)
    assert not is_released(tmp_path / "keys")


def test_empty_directory_is_not(tmp_path: Path) -> None:
    assert not is_released(tmp_path / "keys")


def test_online_keys_without_a_release_wait_for_the_ceremony(tmp_path: Path) -> None:
    make_online_keys(tmp_path / "keys", ORIGIN, NOW)
    with pytest.raises(UsageError, match="STO-K093"):
        is_released(tmp_path / "keys")


def test_offline_keys_beside_a_released_root_are_refused(tmp_path: Path) -> None:
    made = ReleasedProject(tmp_path / "keys", ORIGIN, INSTALLED)
    made.publish(NOW)
    (tmp_path / "keys" / "offline").mkdir(mode=0o700)
    with pytest.raises(UsageError, match="STO-K091"):
        is_released(tmp_path / "keys")


def test_server_that_works_by_its_release_starts(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    check_certified(trust, terms(project))
    check_certified(trust, dataclasses.replace(terms(project), origin=ORIGIN))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"policies": frozenset({"0" * 64})}, "policy"),
        ({"languages": frozenset()}, "language layer"),
        ({"levels": ()}, "levels"),
    ],
)
def test_server_that_works_by_something_else_is_refused(
    project: ReleasedProject,
    trust: TrustedRelease,
    change: dict[str, object],
    word: str,
) -> None:
    with pytest.raises(TrustError, match="STO-K094") as refusal:
        check_certified(dataclasses.replace(trust, **change), terms(project))
    assert word in refusal.value.message
    assert refusal.value.hint


def test_server_of_another_name_is_refused(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    other = dataclasses.replace(terms(project), origin="other.example/log")
    with pytest.raises(TrustError, match="STO-K094"):
        check_certified(trust, other)


def test_log_key_that_the_release_does_not_name_is_refused(
    project: ReleasedProject, trust: TrustedRelease, tmp_path: Path
) -> None:
    vkey = make_online_keys(tmp_path / "keys", ORIGIN, NOW).log_vkey
    with pytest.raises(TrustError, match=r"log.s key"):
        check_certified(trust, dataclasses.replace(terms(project), log_vkey=vkey))


def test_witnesses_that_the_release_does_not_demand_are_refused(
    project: ReleasedProject, trust: TrustedRelease
) -> None:
    mine = _one_witness(Ed25519PrivateKey.from_private_bytes(b"\5" * 32))
    with pytest.raises(TrustError, match="witnesses"):
        check_certified(trust, dataclasses.replace(terms(project), witnesses=mine))


def test_fresh_offline_roles_let_a_server_start(project: ReleasedProject) -> None:
    check_offline_roles(read_roles(project.directory, NOW))


def test_expired_timestamp_alone_does_not_keep_a_server_from_starting(
    project: ReleasedProject,
) -> None:
    roles = read_roles(project.directory, NOW + 60 * 86_400)
    assert {one.role for one in roles if one.state == "expired"} == {
        "snapshot",
        "timestamp",
    }
    check_offline_roles(roles)


def test_expired_offline_role_is_named(project: ReleasedProject) -> None:
    with pytest.raises(StoiloError, match="STO-K011") as refusal:
        check_offline_roles(read_roles(project.directory, NOW + YEAR_S))
    assert "root" in refusal.value.message
