from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import delete, func, insert, select, update

from stoilo.core.boinc.messages import OtherResult, ReportedResult, ResultState
from stoilo.core.errors import StoiloError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import WorkunitState
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.workunits import purge
from stoilo.server.engines.embedded.workunits.purge import DAY_S, Retention
from stoilo.server.engines.interface import OutcomeKind
from tests.support.engine import make_spec

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=6, max_success=3
)
KEPT = Retention(workunit_days=30, host_days=180)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(
        tmp_path / "engine",
        clock,
        EngineOptions(retention=KEPT),
        database_url=engine_url,
    )
    yield made
    made.engine.close()


def make(bench, *names, redundancy=SINGLE):
    specs = [make_spec(name, redundancy=redundancy) for name in names]
    bench.engine.create_workunits(specs)


def finish_all(bench, user=1):
    copies = bench.fetch(user, room=16)
    for copy in copies:
        bench.finish(user, copy, b"same")
    bench.settle()
    return copies


def count(bench, table, *conditions):
    with bench.engine._database.read() as connection:
        query = select(func.count()).select_from(table).where(*conditions)
        return connection.scalar(query)


def names_left(bench):
    with bench.engine._database.read() as connection:
        return set(connection.scalars(select(schema.workunits.c.name)))


def purge_all(bench):
    for _ in range(100):
        if not bench.engine.purge():
            return
    raise AssertionError("the purge does not come to an end")


@pytest.fixture
def old(bench):
    """Two finished workunits and a newest one, after the time that rows are kept."""
    make(bench, "a_1", "b_1")
    finish_all(bench)
    make(bench, "newest_1")
    bench.pass_time(30 * DAY_S + 1)
    return bench


def test_finished_workunits_go_with_their_copies(old):
    assert not old.engine.purge()
    assert names_left(old) == {"newest_1"}
    assert count(old, schema.results) == 1
    assert old.engine.status("a_1") is None


def test_finished_workunits_stay_as_long_as_was_said(bench):
    make(bench, "a_1")
    finish_all(bench)
    make(bench, "newest_1")
    bench.pass_time(30 * DAY_S - 1)
    bench.engine.purge()
    assert names_left(bench) == {"a_1", "newest_1"}


def test_unfinished_workunits_stay_for_ever(bench):
    make(bench, "a_1", "b_1", "newest_1")
    bench.fetch(1, room=1)
    bench.pass_time(4000 * DAY_S)
    bench.engine.purge()
    assert names_left(bench) == {"a_1", "b_1", "newest_1"}


def test_purge_again_changes_nothing_and_waits_for_no_writer(old):
    old.engine.purge()
    before = names_left(old)
    with old.engine._database.write():
        assert not old.engine.purge()
    assert names_left(old) == before


def test_purge_is_bounded_and_says_that_there_is_more(old, monkeypatch):
    monkeypatch.setattr(purge, "PURGED_TOGETHER", 1)
    monkeypatch.setattr("stoilo.server.engines.embedded.engine.PURGED_TOGETHER", 1)
    assert old.engine.purge()
    assert len(names_left(old)) == 2
    purge_all(old)
    assert names_left(old) == {"newest_1"}


def test_nothing_goes_where_rows_are_kept_for_ever(old):
    with old.engine._database.write() as connection:
        assert purge.purge(connection, Retention(0, 0), 2**40) == 0
    assert len(names_left(old)) == 3


# ------------------------------------------------------------------ late results


def test_late_report_of_a_purged_copy_is_acknowledged_and_changes_nothing(bench):
    make(bench, "a_1")
    (copy,) = finish_all(bench)
    make(bench, "newest_1")
    bench.pass_time(30 * DAY_S + 1)
    bench.engine.purge()
    report = ReportedResult(copy, ResultState.UPLOADED, 0, 5.0)
    before = count(bench, schema.results)
    others = (OtherResult(copy),)
    reply = bench.request(1, results=(report,), other_results=others)
    assert reply.acks == reply.aborts == (copy,)
    bench.settle()
    assert count(bench, schema.results) == before


def test_upload_of_a_purged_copy_is_refused(old):
    old.engine.purge()
    for copy in ("a_1_0", "b_1_0"):
        with pytest.raises(StoiloError, match="STO-E0"):
            old.upload(copy, b"late")


def test_workunit_whose_copies_may_come_back_stays(bench):
    pair = Redundancy(min_quorum=1, target_results=2, max_success=3)
    make(bench, "a_1", redundancy=pair)
    bench.fetch(2, room=1)
    finish_all(bench)
    make(bench, "newest_1")
    bench.engine.purge()
    state = schema.workunits.c.state
    assert count(bench, schema.workunits, state == WorkunitState.LINGERING) == 1
    with bench.engine._database.write() as connection:
        assert purge.purge(connection, KEPT, bench.clock() + 99 * DAY_S) == 0


# --------------------------------------------------------------------- what stays


@pytest.mark.parametrize("what", ["ban", "excuse", "untold", "check"])
def test_workunit_that_something_is_known_of_stays(old, what):
    with old.engine._database.write() as connection:
        work, result, host = schema.workunits, schema.results, schema.hosts
        row = connection.scalar(select(work.c.id).where(work.c.name == "a_1"))
        excuse = {"host_id": 1, "workunit_id": row}
        checked = update(result).where(result.c.workunit_id == row)
        statement = {
            "ban": update(host).values(ban=row),
            "excuse": insert(schema.excuses).values(excuse),
            "untold": update(work).where(work.c.id == row).values(tell_at=1),
            "check": checked.values(recheck="same"),
        }[what]
        connection.execute(statement)
    old.engine.purge()
    assert names_left(old) == {"a_1", "newest_1"}


def test_credit_stays(old):
    before = old.request(1).user.total_credit
    old.engine.purge()
    assert old.request(1).user.total_credit == before > 0


def test_number_of_a_purged_row_never_comes_again(bench):
    make(bench, "a_1")
    finish_all(bench)
    with bench.engine._database.read() as connection:
        before = connection.scalar(select(func.max(schema.results.c.id)))
    bench.pass_time(99 * DAY_S)
    bench.engine.purge()
    make(bench, "b_1")
    purge_all(bench)
    with bench.engine._database.read() as connection:
        query = select(func.min(schema.results.c.id))
        of = schema.workunits.c.name == "b_1"
        query = query.join(schema.workunits).where(of)
        assert connection.scalar(query) > before
    finish_all(bench)
    paid = schema.results.c.granted > 0
    assert count(bench, schema.results, paid) == 1


def test_workunit_of_the_newest_copy_stays(old):
    with old.engine._database.write() as connection:
        work, copy = schema.workunits, schema.results
        row = connection.scalar(select(work.c.id).where(work.c.name == "a_1"))
        newest = connection.scalar(select(func.max(copy.c.id)))
        connection.execute(delete(copy).where(copy.c.workunit_id != row))
        assert connection.scalar(select(func.max(copy.c.id))) < newest
    old.engine.purge()
    assert "a_1" in names_left(old)


def test_every_kind_of_end_is_purged(bench):
    make(bench, "a_1", "b_1")
    bench.engine.cancel("a_1")
    for user in range(1, 6):
        for copy in bench.fetch(user, room=1):
            bench.fail(user, copy)
        bench.settle()
    kinds = {bench.outcomes.kind(name) for name in ("a_1", "b_1")}
    assert kinds == {OutcomeKind.CANCELLED, OutcomeKind.TOO_MANY_ERRORS}
    make(bench, "newest_1")
    bench.pass_time(31 * DAY_S)
    bench.engine.purge()
    assert names_left(bench) == {"newest_1"}


# -------------------------------------------------------------------------- hosts


def hosts_left(bench):
    return count(bench, schema.hosts)


def test_hosts_that_never_did_anything_go_when_they_stay_away(bench):
    for user in (1, 2, 3):
        bench.request(user)
    bench.pass_time(181 * DAY_S)
    bench.request(2)
    bench.engine.purge()
    assert hosts_left(bench) == 2  # the one that called, and the newest
    assert bench.request(1).host_id > 3


def test_host_with_credit_or_a_ban_stays(bench):
    make(bench, "a_1", "newest_1")
    (copy,) = bench.fetch(1, room=1)
    bench.request(2)
    bench.request(3)
    bench.finish(1, copy, b"same")
    bench.settle()
    with bench.engine._database.write() as connection:
        banned = bench.host_id(connection, 2)
        mine = schema.hosts.c.id == banned
        connection.execute(update(schema.hosts).where(mine).values(ban=0))
    bench.pass_time(400 * DAY_S)
    purge_all(bench)
    assert hosts_left(bench) == 3


def test_every_table_that_names_a_row_is_thought_of():
    handled = {"engine_host_app", "engine_lease", "engine_result"}
    guards = {"engine_workunit_file"}
    gone = {"engine_workunit", "engine_result", "engine_host"}
    named = {
        table.name
        for table in schema.metadata.tables.values()
        for key in table.foreign_keys
        if key.column.table.name in gone
    }
    assert named <= handled | guards


def test_running_engine_purges_by_itself(old, wait_until):
    old.engine.start(old.validation, old.outcomes)
    wait_until(lambda: names_left(old) == {"newest_1"})
