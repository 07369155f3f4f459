"""Which attempts a move begins anew: those of the project that is left, no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stoilo.server.operations import moving

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture
def names(bench: Bench) -> list[str]:
    """Return the workunits of five tasks under way."""
    return [asyncio.run(bench.issued(f"k{number}"))[0] for number in range(5)]


def move(bench: Bench, at_home: set[str]) -> int:
    return moving.move_tasks(bench.store, at_home.intersection, bench.clock())


def test_attempts_of_the_project_that_is_left_get_a_successor(
    bench: Bench, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "_BATCH", 2)
    assert move(bench, set(names)) == 5
    assert [bench.poll(name).attempt for name in names] == [2] * 5


def test_attempts_that_the_stock_project_has_by_now_are_left_alone(
    bench: Bench, names: list[str]
) -> None:
    assert move(bench, {names[0]}) == 1
    assert [bench.poll(name).attempt for name in names] == [2, 1, 1, 1, 1]
