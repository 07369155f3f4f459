from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuf.api.metadata import Targets

from stoilo.signer.ceremony.expiry import expiries, expiry_state, worst_state
from stoilo.signer.roles import DAY_S, role_limits

NOW = 1_800_000_000
LIMITS = role_limits("targets")


def state(left_days: float) -> str:
    return expiry_state(LIMITS, NOW + int(left_days * DAY_S), NOW)


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
    assert worst_state([found]) == found.state == "urgent"


def test_nothing_is_fine() -> None:
    assert worst_state([]) == "ok"
