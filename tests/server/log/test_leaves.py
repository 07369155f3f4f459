"""The outbox: each event exactly one leaf, whatever crashes; records are made right."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import select

from stoilo.audit.format.facts import (
    OutcomeRecord,
    PolicyRecord,
    RefusalsRecord,
    RevocationRecord,
    WorkunitRecord,
)
from stoilo.audit.format.proof import LeafKind, parse_leaf
from stoilo.audit.format.records import record_leaf, task_commitment
from stoilo.audit.log.side import ObjectKind, SideStore
from stoilo.core.digests import content_digest
from stoilo.core.errors import InternalError, TrustError
from stoilo.core.statement import RevocationStatement, render_revocation
from stoilo.server.admission import tokens
from stoilo.server.db import schema
from stoilo.server.log.leaves import LeafBook, log_changes
from stoilo.server.log.outbox import (
    NO_ORIGIN,
    Event,
    EventKind,
    note_events,
    note_record,
)
from stoilo.server.log.public_records import submitter_commitment
from stoilo.server.operations.accounts import cancel_for_operator
from tests.support.server import make_result
from tests.support.serverbench import SOURCE, Bench, records

POLICY = PolicyRecord(NO_ORIGIN, 5, "in_force", "a" * 64)


def finish(bench: Bench, name: str, statement: bytes) -> None:
    frame = {"status": "user_error", "error_type": "E", "error_text": "hidden"}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    bench.server.pipeline.run_once()


def test_issued_workunit_is_explained_to_outsiders(bench: Bench) -> None:
    name, _ = asyncio.run(bench.issued())
    bench.server.pipeline.run_once()
    (record,) = (one for one in records(bench) if isinstance(one, WorkunitRecord))
    assert record.task == task_commitment(name.partition("_")[0])
    assert parse_leaf(bench.log.leaves[record.admission]).kind is LeafKind.ADMISSION
    assert (record.state, record.attempt, record.public_source) == ("issued", 1, False)
    assert record.source != content_digest(SOURCE)


def test_published_source_lies_in_the_side_store(bench: Bench) -> None:
    asyncio.run(bench.issued(publish_source=True))
    bench.server.pipeline.run_once()
    (record,) = (one for one in records(bench) if isinstance(one, WorkunitRecord))
    assert bench.side.get(ObjectKind.SOURCE, record.source) == SOURCE


@pytest.mark.parametrize("steps", [("_seal",), ("_seal", "_append")])
def test_admission_that_gets_no_workunit_is_explained_too(
    bench: Bench, steps: tuple[str, ...]
) -> None:
    """Also one that was cancelled before the server knew its place in the log."""
    task_id = asyncio.run(bench.submit())
    for step in steps:
        getattr(bench.server.pipeline, step)()
    cancel_for_operator(bench.store, task_id, 9)
    bench.server.pipeline.run_once()
    bench.server.pipeline.run_once()
    (record,) = (one for one in records(bench) if isinstance(one, WorkunitRecord))
    assert (record.state, bench.engine.specs) == ("withdrawn", {})
    assert bench.kinds().count("admission") == 1


def test_outcome_points_to_its_admission(bench: Bench) -> None:
    finish(bench, *asyncio.run(bench.issued()))
    (outcome,) = (one for one in records(bench) if isinstance(one, OutcomeRecord))
    (workunit,) = (one for one in records(bench) if isinstance(one, WorkunitRecord))
    assert (outcome.task, outcome.admission) == (workunit.task, workunit.admission)
    assert (outcome.state, outcome.agreeing) == ("user_error", 2)


def test_task_cancelled_before_any_admission_has_an_outcome(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    assert cancel_for_operator(bench.store, task_id, 9) == "cancelled"
    bench.server.pipeline.run_once()
    (outcome,) = (one for one in records(bench) if isinstance(one, OutcomeRecord))
    assert (outcome.state, outcome.admission) == ("cancelled", -1)


def test_refusals_are_told_with_their_rules_and_without_what_was_refused(
    bench: Bench,
) -> None:
    for key in "ab":
        with pytest.raises(Exception, match="STO-R020"):
            asyncio.run(bench.submit(key, task_module=b"import os\n"))
    bench.server.leaves.flush_refusals()
    bench.server.leaves.append_all(bench.log)
    (record,) = (one for one in records(bench) if isinstance(one, RefusalsRecord))
    assert (record.count, sum(one.count for one in record.codes)) == (2, 2)
    with bench.store.read() as connection:
        owner = tokens.find_owner(connection, bench.token, bench.clock())
    assert record.submitter == submitter_commitment(owner.salt)


class Fuse:
    """Raises at one step of many; steps are counted in order."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise InternalError("STO-R030", "killed here")


def wire(bench: Bench, fuse: Fuse) -> None:
    """Let the fuse count each durable step of the book, before and after it."""
    for owner, name in (
        (bench.log, "append_many"),
        (bench.side, "put"),
        (bench.side, "index"),
    ):
        real = getattr(owner, name)

        def guarded(*given: Any, real: Callable[..., Any] = real) -> Any:
            fuse.step()
            done = real(*given)
            fuse.step()
            return done

        setattr(owner, name, guarded)
    real_write = bench.store.write

    @contextmanager
    def write() -> Iterator[Any]:
        fuse.step()
        with real_write() as connection:
            yield connection
        fuse.step()

    bench.store.write = write  # type: ignore[method-assign]  # the point of the test


def crash_once(bench: Bench, at: int) -> bool:
    """Append everything with a crash at step `at`; False when there is no such step."""
    fuse = Fuse(at)
    wire(bench, fuse)
    try:
        bench.server.leaves.append_all(bench.log)
    except InternalError:
        bench.epoch(at + 1)  # the restarted server may be in another epoch
    bench.server.leaves.append_all(bench.log)
    return fuse.count >= at


def test_crash_at_every_step_loses_no_event_and_repeats_none(
    bench_maker: Callable[..., Bench], tmp_path_factory: pytest.TempPathFactory
) -> None:
    crashed, at = True, 0
    while crashed:
        at += 1
        bench = bench_maker(tmp_path_factory.mktemp("outbox"))
        finish_quietly(bench)
        crashed = crash_once(bench, at)
        kinds = Counter(parse_leaf(leaf).kind.value for leaf in bench.log.leaves)
        assert kinds == {
            "admission": 2, "workunit": 2, "result": 2, "policy": 1, "operator": 1
        }  # fmt: skip
        assert len(records(bench)) == 6
    assert at > 10


def finish_quietly(bench: Bench) -> None:
    """Let two tasks end while the book is closed, and note one more event."""
    steps = bench.server.pipeline
    names = [asyncio.run(bench.submit(key)) for key in ("a", "b")]
    for step in ("_seal", "_append", "_sign", "_issue"):
        getattr(steps, step)()
    for task_id in names:
        frame = {"status": "user_error", "error_type": "E", "error_text": "e"}
        name, statement = f"{task_id}_1", bench.statement(task_id)
        files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
        bench.engine.deliver(name, files)
    with bench.store.write() as connection:
        note_record(connection, "once", POLICY)


def test_event_noted_twice_is_one_leaf(bench: Bench) -> None:
    event = Event("once", EventKind.RECORD, 5, POLICY)
    with bench.store.write() as connection:
        assert note_events(connection, [event, event]) == 1
        assert not note_record(connection, "once", POLICY)
    bench.server.leaves.append_all(bench.log)
    assert bench.kinds() == ["policy"]


def test_event_and_its_cause_are_durable_together_or_not_at_all(bench: Bench) -> None:
    def fail() -> None:
        with bench.store.write() as connection:
            tokens.issue_token(connection, "eve", tokens.Role.RESEARCHER, 5)
            raise RuntimeError("killed here")

    with pytest.raises(RuntimeError):
        fail()
    bench.server.leaves.append_all(bench.log)
    assert len(bench.log.leaves) == 1  # the bench's own token


def test_between_two_epochs_events_wait(bench: Bench) -> None:
    bench.epoch(None)
    with pytest.raises(InternalError, match="STO-K024"):
        bench.server.leaves.append_all(bench.log)
    log_changes(bench.server.leaves, bench.log, bench.server.leaves._facts)
    assert bench.log.leaves == []
    bench.epoch(2)
    assert bench.server.leaves.append_all(bench.log) == 1


def test_full_log_keeps_events_waiting(bench: Bench) -> None:
    bench.log.fail = InternalError("STO-R030", "the log's disk is full")
    with pytest.raises(InternalError, match="STO-R030"):
        bench.server.leaves.append_all(bench.log)
    bench.log.fail = None
    assert bench.server.leaves.append_all(bench.log) == 1


def test_lost_side_store_is_filled_again(bench: Bench) -> None:
    finish(bench, *asyncio.run(bench.issued()))
    lost, book = bench.side, bench.server.leaves
    fresh = SideStore.in_memory()
    again = LeafBook(bench.store, fresh, book._facts, bench.clock)
    assert again.refill() == lost.count(ObjectKind.RECORD) > 2
    bench.side = fresh
    assert len(records(bench)) == len(bench.log.leaves) - 1
    assert again.refill() == 0


def test_revocation_is_readable_before_its_leaf_and_found_after_it(
    bench: Bench,
) -> None:
    statement = RevocationStatement(
        "stoilo.test/log", 5, 1, "online", 1, 1, "b" * 64, (), 1, ("c" * 64,), ()
    )
    data = render_revocation(statement)
    bench.server.leaves.adopt(data)
    (index,) = bench.log.append_many([record_leaf(data, "1")])
    bench.server.leaves.append_all(bench.log)
    assert index == 0
    assert Counter(bench.kinds())["revocation"] == 1
    assert isinstance(records(bench)[0], RevocationRecord)


def test_only_revocations_are_adopted(bench: Bench) -> None:
    with pytest.raises((InternalError, TrustError)):
        bench.server.leaves.adopt(b"{}")


def test_places_are_noted_for_the_check_at_the_next_start(bench: Bench) -> None:
    finish(bench, *asyncio.run(bench.issued()))
    with bench.store.read() as connection:
        places = set(connection.scalars(select(schema.event.c.log_index)))
    assert places == set(range(len(bench.log.leaves))) - {0}
