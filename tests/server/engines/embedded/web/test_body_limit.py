from __future__ import annotations

from contextlib import ExitStack

import pytest

from stoilo.server.engines.embedded.web.body_limit import (
    BODIES_OF_ACCOUNT,
    LARGE_OF_NEWCOMERS,
    LARGE_PLACES,
    BodiesInHand,
)


@pytest.fixture
def held():
    with ExitStack() as stack:
        yield stack


def large(held, bodies, count, *, newcomer=False, name="a"):
    places = [
        bodies.large(f"{name}{number}", newcomer=newcomer) for number in range(count)
    ]
    return [held.enter_context(place) for place in places]


def test_one_account_has_so_many_bodies_in_hand_and_no_more(held):
    bodies = BodiesInHand()
    several = [bodies.body("a") for _ in range(BODIES_OF_ACCOUNT)]
    assert all(held.enter_context(one) for one in several)
    assert not held.enter_context(bodies.body("a"))
    assert held.enter_context(bodies.body("b"))
    held.close()
    assert held.enter_context(bodies.body("a"))


def test_one_account_has_one_large_body_in_hand(held):
    bodies = BodiesInHand()
    with bodies.large("a", newcomer=False) as first:
        assert first
        assert not held.enter_context(bodies.large("a", newcomer=False))
        assert held.enter_context(bodies.large("b", newcomer=False))
    assert held.enter_context(bodies.large("a", newcomer=False))


def test_places_for_large_bodies_are_few(held):
    bodies = BodiesInHand()
    assert all(large(held, bodies, LARGE_PLACES))
    assert not any(large(held, bodies, 1, name="b"))
    held.close()
    assert all(large(held, bodies, 1, name="b"))


def test_newcomers_leave_places_to_others(held):
    bodies = BodiesInHand()
    assert all(large(held, bodies, LARGE_OF_NEWCOMERS, newcomer=True))
    assert not any(large(held, bodies, 1, newcomer=True, name="b"))
    assert all(large(held, bodies, LARGE_PLACES - LARGE_OF_NEWCOMERS, name="c"))


def test_body_that_could_not_be_read_gives_its_place_back(held):
    bodies = BodiesInHand()
    for place in (bodies.large("a", newcomer=False), bodies.body("a")):
        with pytest.raises(OSError, match="lost"), place:
            raise OSError("lost")
    assert held.enter_context(bodies.large("a", newcomer=False))
    assert bodies._bodies == {}
