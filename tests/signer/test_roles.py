import pytest

from stoilo.signer.repository import LIFETIMES
from stoilo.signer.roles import OFFLINE, ceremony_bounds, load_roles, role_limits


def test_every_role_has_limits_that_make_sense() -> None:
    for limits in load_roles().roles.values():
        assert limits.urgent_days < limits.warn_days < limits.lifetime_days
        assert limits.min_threshold <= limits.min_keys <= limits.max_keys


def test_people_sign_offline_roles_and_only_those() -> None:
    offline = {
        name for name, one in load_roles().roles.items() if one.signs == "offline"
    }
    assert offline == set(OFFLINE)


@pytest.mark.parametrize("role", ["root", "targets"])
def test_root_and_targets_need_two_people_of_three(role: str) -> None:
    limits = role_limits(role)
    assert (limits.min_threshold, limits.min_keys) == (2, 3)


@pytest.mark.parametrize("role", sorted(LIFETIMES))
def test_limits_agree_with_those_of_development_roots(role: str) -> None:
    assert role_limits(role).lifetime_days == LIFETIMES[role].days


def test_a_proposal_is_signed_before_its_shortest_metadata_ends() -> None:
    shortest = min(role_limits(role).lifetime_days for role in OFFLINE)
    assert ceremony_bounds().life_days < shortest
