from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import InternalError, StoiloError, TrustError
from stoilo.core.statement import parse_statement
from stoilo.server.admission.pipeline import RENEWAL_S
from stoilo.server.db.records import MAX_ATTEMPTS
from stoilo.server.db.store import DatabaseAwayError
from stoilo.server.engines.interface import OutcomeKind
from tests.support.server import make_result

if TYPE_CHECKING:
    from tests.support.serverbench import Bench


def ok(value: object) -> dict[str, object]:
    return {"status": "ok", "value": encode(value)}


def test_task_walks_every_step_and_returns_the_canonical_value(bench: Bench) -> None:
    name, statement = asyncio.run(bench.issued())
    files = [make_result(f"{name}_{n}", statement, ok(2)) for n in (0, 1)]
    assert bench.engine.deliver(name, files) is OutcomeKind.CANONICAL
    answer = bench.poll(name)
    assert (answer.state, answer.value) == ("succeeded", encode(2))
    assert answer.logged


@pytest.mark.parametrize(("batch", "goes_on"), [(2, False), (1, True)])
def test_worker_wakes_the_next_one_only_and_goes_on_after_a_full_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, batch: int, goes_on: bool
) -> None:
    monkeypatch.setattr("stoilo.server.admission.pipeline.BATCH", batch)
    asyncio.run(bench.submit())
    woken: list[str] = []
    workers = bench.server.pipeline.workers[:3]
    for worker in bench.server.pipeline.workers:
        monkeypatch.setattr(worker, "wake", partial(woken.append, worker.name))
    assert [worker.go() for worker in workers] == [goes_on] * 3
    assert woken == ["admission-sign", "admission-issue"]
    assert [worker.go() for worker in workers] == [False] * 3


def test_no_workunit_when_the_log_refuses(bench: Bench) -> None:
    bench.log.fail = InternalError("STO-L001", "disk full")
    asyncio.run(bench.submit())
    with pytest.raises(InternalError):
        bench.server.pipeline.run_once()
    assert not bench.engine.specs
    assert not bench.signer.signed


def test_no_workunit_when_nothing_is_published(bench: Bench) -> None:
    bench.log.published = False
    asyncio.run(bench.submit())
    with pytest.raises(AssertionError):
        bench.server.pipeline.run_once()
    assert not bench.engine.specs


def test_interrupted_after_each_step_resumes_without_a_second_leaf(
    bench: Bench,
) -> None:
    name = asyncio.run(bench.submit()) + "_1"
    pipeline = bench.server.pipeline
    for step in (pipeline._seal, pipeline._append, pipeline._sign, pipeline._issue):
        step()
        bench.log.append_many(bench.log.leaves)  # a crash would repeat the append
    assert len(bench.log.leaves) == 1
    assert list(bench.engine.specs) == [name]


def test_signers_refusal_ends_the_task_with_its_code(bench: Bench) -> None:
    bench.signer.fail = TrustError("STO-A020", "the proof does not hold")
    task_id = asyncio.run(bench.submit())
    bench.server.pipeline.run_once()
    assert bench.poll(task_id).state == "system_error"
    assert bench.poll(task_id).code == "STO-A020"


@pytest.mark.parametrize("code", ["STO-K024", "STO-A040", "STO-A043"])
def test_refusal_of_epoch_or_times_opens_a_new_attempt_when_they_have_changed(
    bench: Bench, code: str
) -> None:
    task_id = asyncio.run(bench.submit())
    bench.signer.fail = TrustError(code, "the epoch has ended")
    bench.server.pipeline.run_once()
    assert (bench.poll(task_id).attempt, bench.kinds()) == (1, ["admission"])
    bench.clock.now += RENEWAL_S
    bench.server.pipeline.run_once()
    bench.signer.fail = None
    bench.server.pipeline.run_once()
    assert (bench.poll(task_id).attempt, bench.kinds().count("admission")) == (2, 2)
    assert list(bench.engine.specs) == [f"{task_id}_2"]


def test_new_epoch_replaces_a_statement_of_the_old_one_at_once(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    bench.signer.fail = TrustError("STO-K024", "epoch 1 is not open now")
    bench.server.pipeline.run_once()
    bench.epoch(2)
    bench.server.pipeline.run_once()
    bench.signer.fail = None
    bench.server.pipeline.run_once()
    assert parse_statement(bench.statement(task_id, 2)).epoch == 2
    assert bench.poll(task_id).state == "running"


def test_without_an_open_epoch_tasks_wait(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    bench.epoch(None)
    with pytest.raises(InternalError, match="STO-K024"):
        bench.server.pipeline.run_once()
    assert bench.poll(task_id).state == "admitting"
    bench.epoch(2)
    bench.server.pipeline.run_once()
    assert bench.poll(task_id).state == "running"


def test_result_leaf_repeated_after_a_crash_is_the_same_in_another_epoch(
    bench: Bench,
) -> None:
    name, statement = asyncio.run(bench.issued())
    files = [make_result(f"{name}_{n}", statement, ok(2)) for n in (0, 1)]
    bench.engine.deliver(name, files)
    real = bench.log.append_many

    def crash(*arguments: Any) -> list[int]:
        real(*arguments)
        raise InternalError("STO-L001", "killed after the append")

    bench.log.append_many = crash  # type: ignore[method-assign]  # the crash
    with pytest.raises(InternalError):
        bench.server.leaves.append_waiting(bench.log)
    bench.log.append_many = real  # type: ignore[method-assign]  # restarted
    bench.epoch(2)
    bench.server.leaves.append_waiting(bench.log)
    assert bench.kinds() == ["admission", "workunit", "result"]
    assert bench.poll(name).logged


def test_late_admission_gets_a_new_attempt_with_a_new_nonce(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    pipeline = bench.server.pipeline
    for step in (pipeline._seal, pipeline._append, pipeline._sign):
        step()
    bench.clock.now += 8 * 86_400
    pipeline.run_once()
    pipeline.run_once()
    first, second = (
        parse_statement(bench.statement(task_id, number)) for number in (1, 2)
    )
    assert list(bench.engine.specs) == [f"{task_id}_2"]
    assert (second.attempt, second.nonce == first.nonce) == (2, False)


def test_admission_ended_in_the_engine_opens_the_next_attempt(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    bench.engine.end(name, OutcomeKind.ADMISSION_ENDED)
    bench.server.pipeline.run_once()
    assert bench.poll(name).attempt == 2
    assert bench.poll(name).state == "running"


def test_too_many_attempts_expire_the_task(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    for number in range(1, MAX_ATTEMPTS + 1):
        bench.server.pipeline.run_once()
        bench.engine.end(f"{task_id}_{number}", OutcomeKind.ADMISSION_ENDED)
    assert bench.poll(task_id).state == "expired"


def test_outcome_is_stored_once_whatever_the_engine_repeats(bench: Bench) -> None:
    name, statement = asyncio.run(bench.issued())
    files = [make_result(f"{name}_{n}", statement, ok(2)) for n in (0, 1)]
    bench.engine.deliver(name, files)
    bench.engine.end(name, OutcomeKind.TOO_MANY_ERRORS)
    assert bench.poll(name).state == "succeeded"


def test_result_leaf_follows_the_outcome(bench: Bench) -> None:
    name, statement = asyncio.run(bench.issued())
    files = [make_result(f"{name}_{n}", statement, ok(2)) for n in (0, 1)]
    bench.engine.deliver(name, files)
    bench.server.pipeline.run_once()
    assert bench.kinds() == ["admission", "workunit", "result"]


def test_cancelled_task_cancels_its_workunit_also_later(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    with bench.store.read() as connection:
        from stoilo.server.admission import tokens  # noqa: PLC0415

        owner = tokens.find_owner(connection, bench.token, bench.clock())
    assert bench.server.desk.cancel(owner, name.partition("_")[0]) == "cancelled"
    bench.server.pipeline.run_once()
    assert bench.engine.ended[name] is OutcomeKind.CANCELLED
    assert bench.poll(name).state == "cancelled"


@pytest.mark.parametrize(
    ("error", "state"),
    [(DatabaseAwayError(), "running"), (TrustError("STO-A011", "no"), "system_error")],
    ids=["away", "control: refused"],
)
def test_database_that_is_away_while_a_task_is_sealed_does_not_end_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: StoiloError, state: str
) -> None:
    def fail(_task: object) -> str:
        raise error

    task_id = asyncio.run(bench.submit())
    with monkeypatch.context() as patch, suppress(DatabaseAwayError):
        patch.setattr(bench.server.pipeline, "_review", fail)
        bench.server.pipeline.run_once()
    bench.server.pipeline.run_once()
    assert bench.poll(task_id).state == state
