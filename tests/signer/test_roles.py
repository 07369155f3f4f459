from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuf.api.metadata import Targets

from stoilo.signer.roles import (
    DAY_S,
    OFFLINE,
    ceremony_bounds,
    expiries,
    expiry_state,
    load_roles,
    open_until,
    role_limits,
    worst_state,
)


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


def test_a_proposal_is_signed_before_its_shortest_metadata_ends() -> None:
    shortest = min(role_limits(role).lifetime_days for role in OFFLINE)
    assert ceremony_bounds().life_days < shortest


NOW = 1_800_000_000
LIMITS = role_limits("targets")


def state(left_days: float) -> str:
    return expiry_state(int(left_days * DAY_S), LIMITS.warn_days, LIMITS.urgent_days)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (180, "ok"),
        (60.1, "ok"),
        (60, "soon"),
        (21, "urgent"),
        (0, "expired"),
        (-1, "expired"),
    ],
)
def test_days_left_decide(left: float, expected: str) -> None:
    assert state(left) == expected


@given(st.integers(-400, 400), st.integers(0, 400))
def test_less_time_is_never_better(left: int, less: int) -> None:
    order = ("ok", "soon", "urgent", "expired")
    assert order.index(state(left - less)) >= order.index(state(left))


def test_each_role_is_listed_with_version_and_end() -> None:
    signed = Targets(version=7, expires=datetime.fromtimestamp(NOW + DAY_S, UTC))
    (found,) = expiries([("targets", signed)], NOW)
    assert (found.role, found.version, found.expires) == ("targets", 7, NOW + DAY_S)
    assert worst_state([found.state]) == found.state == "urgent"


def test_nothing_is_fine() -> None:
    assert worst_state([]) == "ok"


def test_gap_between_epochs_ends_what_can_be_relied_on() -> None:
    assert open_until([(NOW - 5, NOW + 10), (NOW + 5, NOW + 20)], NOW) == NOW + 20
    assert open_until([(NOW - 5, NOW + 10), (NOW + 11, NOW + 20)], NOW) == NOW + 10
    assert open_until([(NOW + 1, NOW + 20)], NOW) == 0
