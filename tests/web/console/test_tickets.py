"""A ticket is good for its purpose, for its minutes, and once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stoilo.core.errors import DeniedError, PolicyRefusal
from stoilo.web.console.tickets import LIFE_S, Tickets


@pytest.fixture
def time() -> SimpleNamespace:
    return SimpleNamespace(now=5.0)


@pytest.fixture
def made(time: SimpleNamespace) -> Tickets:
    return Tickets(lambda: time.now)


def test_ticket_is_good_once(made: Tickets) -> None:
    ticket = made.make("a")
    made.check(ticket, "a")
    made.spend(ticket, "a")
    for again in (made.check, made.spend):
        with pytest.raises(DeniedError, match="STO-E016"):
            again(ticket, "a")


def test_ticket_of_another_purpose_or_server_is_none(made: Tickets) -> None:
    other = Tickets(lambda: 5.0)
    for ticket in (made.make("b"), other.make("a"), b"", b"\0" * 56):
        with pytest.raises(DeniedError, match="STO-E016"):
            made.check(ticket, "a")


def test_ticket_with_a_changed_bit_is_none(made: Tickets) -> None:
    ticket = made.make("a")
    for place in range(len(ticket)):
        changed = bytearray(ticket)
        changed[place] ^= 1
        with pytest.raises(DeniedError):
            made.check(bytes(changed), "a")
    made.check(ticket, "a")  # control


def test_ticket_ends(made: Tickets, time: SimpleNamespace) -> None:
    ticket = made.make("a")
    time.now += LIFE_S - 1
    made.check(ticket, "a")  # control
    time.now += 1
    with pytest.raises(DeniedError, match="STO-E016"):
        made.check(ticket, "a")


def test_what_was_spent_is_forgotten_only_when_it_is_over(
    time: SimpleNamespace,
) -> None:
    made = Tickets(lambda: time.now, most=2)
    first, second, third = (made.make("a") for _ in range(3))
    made.spend(first, "a")
    made.spend(second, "a")
    with pytest.raises(PolicyRefusal, match="STO-E068"):
        made.spend(third, "a")
    time.now += LIFE_S
    made.spend(made.make("a"), "a")
