"""One task that the engine refuses keeps no other from being issued."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from stoilo.core.errors import InternalError, StoiloError, TrustError, UsageError
from stoilo.server.admission import issuing, pipeline, tokens
from stoilo.server.db.store import DatabaseAwayError
from stoilo.server.engines.interface import OutcomeKind

if TYPE_CHECKING:
    from stoilo.server.engines.workunits import WorkunitSpec
    from tests.support.serverbench import Bench

NO_APP = UsageError("STO-B008", "the project has no app 'pure'")
DISK = InternalError("STO-R030", "an input file could not be staged (errno 2)")
DIGEST = TrustError("STO-E002", "an input file does not have its digest")


def refuse(
    bench: Bench, bad: set[str], error: StoiloError
) -> Callable[[WorkunitSpec], StoiloError | None]:
    """Have the engine refuse the first attempts of these tasks."""
    names = {f"{task_id}_1" for task_id in bad}
    bench.engine.refuses = lambda spec: error if spec.name in names else None
    return bench.engine.refuses


async def submit_many(bench: Bench, count: int) -> list[str]:
    return [await bench.submit(f"k{number}") for number in range(count)]


@pytest.mark.parametrize("error", [NO_APP, DISK, DIGEST], ids=lambda one: one.code)
def test_one_refused_task_lets_all_others_be_issued(
    bench: Bench, error: StoiloError
) -> None:
    tasks = asyncio.run(submit_many(bench, 9))
    refuse(bench, {tasks[4]}, error)
    bench.server.pipeline.run_once()
    issued = {name.removesuffix("_1") for name in bench.engine.specs}
    assert issued == set(tasks) - {tasks[4]}
    assert all(bench.poll(one).state == "running" for one in issued)


def test_refused_task_waits_with_its_reason_and_is_issued_once_that_is_mended(
    bench: Bench,
) -> None:
    (task_id,) = asyncio.run(submit_many(bench, 1))
    refuse(bench, {task_id}, NO_APP)
    bench.server.pipeline.run_once()
    assert "[STO-B008]" in bench.poll(task_id).explanation
    refuse(bench, set(), NO_APP)
    bench.server.pipeline.run_once()
    assert not bench.engine.specs  # not before its time
    bench.clock.now += issuing.HOLD_LEAST_S
    bench.server.pipeline.run_once()
    assert bench.poll(task_id).state == "running"
    assert "STO-B008" not in bench.poll(task_id).explanation


def test_input_of_another_digest_ends_its_task(bench: Bench) -> None:
    (task_id,) = asyncio.run(submit_many(bench, 1))
    refuse(bench, {task_id}, DIGEST)
    bench.server.pipeline.run_once()
    assert (bench.poll(task_id).state, bench.poll(task_id).code) == (
        "system_error",
        "STO-E002",
    )


def test_refused_tasks_that_fill_a_batch_do_not_hide_later_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "BATCH", 8)
    bad = asyncio.run(submit_many(bench, 8))
    bench.clock.now += 1
    refuse(bench, set(bad), NO_APP)
    good = asyncio.run(bench.submit("good"))
    for _ in range(3):
        bench.server.pipeline.run_once()
    assert bench.poll(good).state == "running"


def test_hold_lasts_as_long_as_the_task_has_waited_within_bounds() -> None:
    assert (
        issuing.hold_until(now=1_000, admitted_at=999) == 1_000 + issuing.HOLD_LEAST_S
    )
    assert issuing.hold_until(now=1_000, admitted_at=900) == 1_100
    assert issuing.hold_until(now=9_000, admitted_at=0) == 9_000 + issuing.HOLD_MOST_S


def test_engine_that_is_away_is_asked_a_few_times_only(bench: Bench) -> None:
    asyncio.run(submit_many(bench, 32))
    bench.engine.refuses = lambda _spec: DISK
    with pytest.raises(InternalError, match="STO-R030"):
        bench.server.pipeline.run_once()
    assert bench.engine.calls <= 12
    bench.engine.refuses = lambda _spec: None
    bench.server.pipeline.run_once()
    bench.clock.now += issuing.HOLD_MOST_S
    bench.server.pipeline.run_once()
    assert len(bench.engine.specs) == 32


def test_engine_whose_database_is_away_is_asked_once_and_holds_nothing(
    bench: Bench,
) -> None:
    tasks = asyncio.run(submit_many(bench, 9))
    bench.engine.refuses = lambda _spec: DatabaseAwayError()
    with pytest.raises(DatabaseAwayError):
        bench.server.pipeline.run_once()
    assert bench.engine.calls == 1
    bench.engine.refuses = lambda _spec: None
    bench.server.pipeline.run_once()
    assert len(bench.engine.specs) == len(tasks)  # at once: none waits for its hold


def test_lone_task_that_cannot_be_staged_keeps_no_cancellation_from_the_engine(
    bench: Bench,
) -> None:
    issued, _ = asyncio.run(bench.issued("k1"))
    bad = asyncio.run(bench.submit("k2"))
    refuse(bench, {bad}, DISK)
    with pytest.raises(InternalError, match="STO-R030"):
        bench.server.pipeline.run_once()
    cancel(bench, issued.rpartition("_")[0])
    issue = next(
        one for one in bench.server.pipeline.workers if one.name == "admission-issue"
    )
    issue.go()
    assert bench.engine.ended[issued] is OutcomeKind.CANCELLED
    assert bench.server.pipeline.trouble is not None
    refuse(bench, set(), DISK)
    issue.go()
    assert bench.poll(bad).state == "running"
    assert bench.server.pipeline.trouble is None


def cancel(bench: Bench, task_id: str) -> None:
    with bench.store.read() as connection:
        owner = tokens.find_owner(connection, bench.token, bench.clock())
    bench.server.desk.cancel(owner, task_id)


def test_cancelled_task_leaves_no_hold(bench: Bench) -> None:
    (task_id,) = asyncio.run(submit_many(bench, 1))
    refuse(bench, {task_id}, NO_APP)
    bench.server.pipeline.run_once()
    cancel(bench, task_id)
    bench.server.pipeline.run_once()
    with bench.store.read() as connection:
        assert issuing.find_hold(connection, task_id, 1) == ""
