"""What an owner's word about his tasks costs him."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import PolicyRefusal
from stoilo.server.admission import tokens
from stoilo.server.admission.quotas import RateMeter
from stoilo.server.api import tasks
from tests.support.server import make_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.serverbench import Bench


class MarkingEngine:
    """Stands for one that marks so many copies at each rejection."""

    def __init__(self, marked: int) -> None:
        self.marked = marked
        self.owners: dict[str, int] = {}

    def reject(
        self, name: str, owners: Callable[[Sequence[str]], Mapping[str, int]]
    ) -> int:
        self.owners |= owners([name, "unknown_1"])
        return self.marked


def reject_one(bench: Bench, engine: MarkingEngine, key: str = "k1") -> str:
    """Let a task succeed and its owner reject it; return the workunit."""
    name, statement = asyncio.run(bench.issued(key))
    frame = {"status": "ok", "value": encode(2)}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    with bench.store.read() as connection:
        owner = tokens.find_owner(connection, bench.token, bench.clock())
    bench.server.desk._engine = engine  # type: ignore[assignment]
    assert bench.server.desk.reject(owner, name[:-2], "far") == engine.marked
    return name


def test_engine_is_told_whose_the_workunits_are(bench: Bench) -> None:
    engine = MarkingEngine(1)
    name = reject_one(bench, engine)
    assert list(engine.owners) == [name]


def test_each_copy_that_was_marked_counts_against_the_bound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "REJECTIONS_PER_HOUR", 3)
    engine = MarkingEngine(3)
    reject_one(bench, engine)
    with pytest.raises(PolicyRefusal, match="STO-T027"):
        reject_one(bench, engine, "k2")


def test_meter_refuses_after_a_charge_beyond_its_bound_until_it_has_passed() -> None:
    now = [0.0]
    meter = RateMeter("STO-T027", "events", clock=lambda: now[0])
    meter.charge(1, 20)
    now[0] = 3600.0
    with pytest.raises(PolicyRefusal):
        meter.check(1, 10)
    now[0] = 2 * 3600.0
    meter.check(1, 10)
