"""A server that is older than its engine waits for no outcome that will not come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from stoilo.core.errors import InternalError
from stoilo.server.admission.outdated import INTERVAL_S, Reconciler
from stoilo.server.engines.interface import OutcomeKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from stoilo.server.db.records import AttemptRow, TaskRow
    from tests.support.serverbench import Bench


def test_outcome_that_was_told_to_a_server_since_restored_is_asked_for_anew(
    bench: Bench,
) -> None:
    name, _ = asyncio.run(bench.issued())
    bench.engine.ended[name] = OutcomeKind.CANONICAL  # told, and forgotten by a restore
    bench.server.pipeline.run_once()
    bench.server.pipeline.run_once()
    assert (bench.poll(name).attempt, bench.poll(name).state) == (2, "running")
    assert name.replace("_1", "_2") in bench.engine.specs


def test_workunit_that_the_engine_has_lost_is_made_anew(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    bench.engine.specs.clear()
    bench.server.pipeline.run_once()
    bench.server.pipeline.run_once()
    assert list(bench.engine.specs) == [name.replace("_1", "_2")]


def test_workunit_that_runs_stays(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    for _ in range(3):
        bench.server.pipeline.run_once()
    assert (bench.poll(name).attempt, list(bench.engine.specs)) == (1, [name])


def test_outcome_that_comes_between_the_two_questions_counts(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    real = bench.engine.settled

    def late(names: Collection[str]) -> frozenset[str]:
        if name not in bench.engine.ended:
            bench.engine.end(name, OutcomeKind.TOO_MANY_ERRORS)
        return real(names)

    bench.engine.settled = late  # type: ignore[method-assign]  # the race
    bench.server.pipeline.run_once()
    assert (bench.poll(name).attempt, bench.poll(name).state) == (1, "system_error")


def test_all_pages_are_compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoilo.server.admission.outdated._AT_ONCE", 2)
    names = [asyncio.run(bench.issued(f"k{number}"))[0] for number in range(5)]
    bench.engine.specs.clear()
    bench.server.pipeline.run_once()
    assert [bench.poll(name).attempt for name in names] == [2] * 5


def test_comparison_is_made_at_the_start_and_then_now_and_then(bench: Bench) -> None:
    asyncio.run(bench.issued())
    asked: list[int] = []
    now = 0.0

    def retry(_task: TaskRow, _attempt: AttemptRow) -> None:
        asked.append(1)

    reconciler = Reconciler(bench.store, bench.engine, retry, lambda: now)
    bench.engine.specs.clear()
    assert (reconciler.step(), reconciler.step()) == (1, 0)
    now += INTERVAL_S
    assert (reconciler.step(), len(asked)) == (1, 2)


def test_engine_that_does_not_answer_is_asked_again(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    real = bench.engine.settled

    def away(_names: Collection[str]) -> frozenset[str]:
        raise InternalError("STO-R030", "the database is away")

    bench.engine.specs.clear()
    bench.engine.settled = away  # type: ignore[method-assign]  # the fault
    reconciler = Reconciler(
        bench.store, bench.engine, bench.server.pipeline.attempts.retry
    )
    with pytest.raises(InternalError):
        reconciler.step()
    bench.engine.settled = real  # type: ignore[method-assign]  # it came back
    assert reconciler.step() == 1
    assert bench.poll(name).attempt == 2
