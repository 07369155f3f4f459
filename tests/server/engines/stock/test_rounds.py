"""What the engine looks after by itself, on a project that is not at its best."""

from __future__ import annotations

import threading

import pytest
from stock_bench import StockBench

from stoilo.core.background import Repeater
from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import OutcomeKind
from stoilo.server.engines.stock import creator
from stoilo.server.engines.stock.project.directory import create_work
from stoilo.server.engines.stock.rounds import AT_ONCE
from tests.support.engine import make_spec

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=1, max_total=3, max_success=3
)
SHORT = Redundancy(
    min_quorum=1,
    target_results=1,
    max_error=1,
    max_total=3,
    max_success=3,
    delay_bound_s=100,
)
OLD, NEW = b'{"metadata/root.json":"AA=="}', b'{"metadata/root.json":"AQ=="}'

pytestmark = pytest.mark.slow  # each of BOINC's calls is a process


@pytest.fixture
def bench(tmp_path, clock):
    made = StockBench(tmp_path / "project", clock)
    yield made
    made.close()


def create(bench, *names, **spec):
    spec = {"redundancy": SINGLE, **spec}
    bench.engine.create_workunits([make_spec(name, **spec) for name in names])


def count(bench, table, where="1 = 1"):
    query = f"SELECT count(*) AS n FROM {table} WHERE {where}"  # noqa: S608 - ours
    return bench.daemons._database.row(query).n


def files(bench):
    download = bench.fake.project.download
    return {one.name for one in download.rglob("stoilo_*") if one.suffix != ".md5"}


def break_tool(bench, name, status=1):
    """Let one of BOINC's programs fail, and note each of its calls."""
    tool = bench.fake.project.tool(name)
    aside = tool.rename(tool.with_suffix(".aside"))
    tool.write_text(f"#!/bin/sh\necho >> $0.calls\nexit {status}\n")
    tool.chmod(0o755)
    calls = tool.with_name(f"{name}.calls")
    return (
        lambda: aside.replace(tool),
        lambda: len(calls.read_text().split("\n")) - 1 if calls.exists() else 0,
    )


def answer(bench, user=1, body=b"x"):
    for copy in bench.fetch(user):
        bench.finish(user, copy, body)
    bench.settle()


def look_around(bench):
    bench.pass_time(60)
    bench.settle()


def test_frozen_workunits_keep_no_other_from_being_frozen(bench):
    names = [f"w_{number}" for number in range(AT_ONCE + 1)]
    end = bench.engine.now() + 200
    create(bench, *names, redundancy=SHORT, not_after=end)
    copies = bench.fetch(1, room=len(names))
    assert len(copies) == len(names)
    bench.pass_time(97)
    bench.settle()
    for copy in copies:
        bench.fail(1, copy)
    bench.daemons.transition()
    assert count(bench, "result") == len(names)
    assert bench.fetch(2) == []
    assert bench.engine.status(names[-1]).results  # frozen, not forgotten


def test_copy_made_in_the_moment_of_freezing_is_not_sent(bench):
    end = bench.engine.now() + 200
    create(bench, "w_1", redundancy=SHORT, not_after=end)
    (copy,) = bench.fetch(1)
    bench.pass_time(97)
    bench.settle()
    bench.fail(1, copy)
    bench.daemons._database.run("UPDATE workunit SET max_total_results = 3")
    bench.daemons.transition()  # as one that had read the row before it was frozen
    assert count(bench, "result", "server_state = 2") == 1
    bench.settle()
    assert bench.fetch(2) == []
    assert bench.outcomes.kind("w_1") is OutcomeKind.ADMISSION_ENDED


def test_cancellation_that_waits_for_boinc_lets_the_engine_rest(bench):
    create(bench, "w_1")
    bench.fetch(1)
    bench.engine.cancel("w_1")
    bench.engine.step()
    assert bench.engine.step() is False
    assert count(bench, "stoilo_workunit", "cancelling = 1") == 1


def test_many_are_cancelled_and_no_other_between_them(bench):
    names = [f"w_{number}" for number in range(60)]
    create(bench, *names)
    bench.engine.create_workunits([make_spec("other"), make_spec("last")])
    bench.fetch(1)
    bench.engine.cancel(*names, "last", "never made")
    assert count(bench, "workunit", "error_mask = 16") == 61
    assert count(bench, "workunit", "name = 'other' AND error_mask = 0") == 1
    bench.settle()
    assert {bench.outcomes.kind(name) for name in names} == {OutcomeKind.CANCELLED}
    assert count(bench, "stoilo_workunit", "cancelling = 1") == 0


def test_workunit_cancelled_before_its_number_was_noted_is_cancelled(bench):
    create(bench, "w_1")
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql("UPDATE stoilo_workunit SET boinc_id = 0")
    bench.engine.cancel("w_1")
    assert count(bench, "workunit", "error_mask = 16") == 1


def test_failing_chore_keeps_no_other_from_its_turn():
    done = []

    def fails():
        raise RuntimeError

    def works():
        done.append(1)
        return True

    assert Repeater("x", (fails, works), 1.0).go() is True
    assert Repeater("x", (fails,), 1.0).go() is False
    assert done == [1]


def test_outcome_that_the_server_takes_slowly_lets_no_admission_end_late(bench):
    taking, go_on = threading.Event(), threading.Event()

    class Slow:
        def assimilate(self, outcome):
            taking.set()
            assert go_on.wait(60)
            bench.outcomes.assimilate(outcome)

    end = bench.engine.now() + 200
    create(bench, "w_1")
    create(bench, "w_2", redundancy=SHORT, not_after=end)
    bench.daemons.transition()
    bench.engine.close()
    bench.engine = bench.make()
    bench.engine.start(bench.validation, Slow())
    bench.engine.cancel("w_1")
    assert taking.wait(60)
    bench.pass_time(97)
    wait_until(lambda: count(bench, "stoilo_workunit", "outcome = 'admission_ended'"))
    go_on.set()


def wait_until(condition):
    ticks = threading.Event()
    for _ in range(600):
        if condition():
            return
        ticks.wait(0.1)
    raise AssertionError("it never holds")


def test_submissions_do_not_call_a_failing_tool_each_time(bench):
    mend, calls = break_tool(bench, "create_work")
    for number in range(5):
        create(bench, f"w_{number}")
    assert calls() == 1
    mend()
    bench.pass_time(60)
    bench.settle()
    assert count(bench, "workunit") == 5


def test_workunits_that_cannot_be_made_let_newer_ones_go_first(bench, monkeypatch):
    mend, _ = break_tool(bench, "create_work")
    create(bench, "w_1", "w_2", data=b"to be lost")
    for path in bench.fake.project.download.rglob("stoilo_*"):
        path.unlink()
    mend()
    create(bench, "w_3")
    bench.pass_time(60)
    monkeypatch.setattr(creator, "AT_ONCE", 2)
    few = bench.engine._creator
    assert few.flush() is True
    assert bench.daemons._database.row("SELECT name FROM workunit").name == "w_3"
    assert few.flush() is False


def test_finished_rows_go_when_boinc_has_purged_the_workunit(bench):
    create(bench, "w_1", "w_2")
    answer(bench)
    look_around(bench)
    bench.daemons._database.run("DELETE FROM workunit WHERE name = 'w_1'")
    look_around(bench)
    assert bench.engine.status("w_1") is not None  # so soon nothing goes
    bench.pass_time(86_400)
    look_around(bench)
    assert bench.engine.status("w_1") is None
    assert bench.engine.status("w_2").outcome is OutcomeKind.CANONICAL
    create(bench, "w_2")
    assert bench.outcomes.calls == {"w_1": 1, "w_2": 1}


def test_open_workunit_is_never_purged(bench):
    create(bench, "w_1")
    bench.pass_time(86_400 * 2)
    look_around(bench)
    assert bench.engine.status("w_1").outcome is None
    create(bench, "w_2", not_after=bench.engine.now() + 1)
    look_around(bench)
    bench.outcomes.refuse = 99
    bench.engine.cancel("w_1")
    bench.daemons._database.run("DELETE FROM workunit")
    look_around(bench)
    assert bench.engine.status("w_1") is not None  # undelivered
    assert bench.engine.status("w_2") is not None  # young


def test_workunit_made_late_gets_the_release_of_then(bench):
    bench.engine.set_release(OLD)
    mend, _ = break_tool(bench, "create_work")
    create(bench, "w_1")
    bench.engine.set_release(NEW)
    bench.settle()
    mend()
    bench.pass_time(60)
    bench.settle()
    text = bench.daemons._database.row("SELECT xml_doc FROM workunit").xml_doc
    assert bench.engine._inputs.release.name in text.decode()


def test_file_of_an_old_release_stays_for_hosts_on_their_way_and_goes_then(bench):
    bench.engine.set_release(OLD)
    create(bench, "w_1")
    (copy,) = bench.fetch(1)
    old = bench.engine._inputs.release.name
    bench.engine.set_release(NEW)
    bench.settle()
    look_around(bench)
    assert old in files(bench)
    bench.finish(1, copy, b"x")
    bench.settle()
    look_around(bench)
    assert files(bench) == {bench.engine._inputs.release.name}


def test_renewed_workunit_that_boinc_lost_is_made_anew(bench):
    bench.engine.set_release(OLD)
    create(bench, "w_1")
    bench.engine.set_release(NEW)
    bench.settle()
    bench.daemons._database.run("DELETE FROM workunit")
    look_around(bench)
    answer(bench)
    assert bench.outcomes.calls["w_1"] == 1


def test_files_that_a_crash_left_go_at_a_start(bench):
    bench.engine.set_release(OLD)
    create(bench, "w_1")
    needed = files(bench)
    bench.engine._inputs.stage.add(make_spec("w_2", data=b"never stored").files)
    kept = bench.fake.project.own / "kept" / "77"
    kept.mkdir(parents=True)
    (kept / "w_9_0").touch()
    strange = bench.fake.project.download / "stoilo_verifier_1.0"
    strange.touch()
    assert len(files(bench)) == len(needed) + 2
    bench.restart()
    bench.pass_time(3600)
    look_around(bench)
    assert files(bench) == {*needed, strange.name}
    assert not kept.exists()
    sums = bench.fake.project.download.rglob("*.md5")
    assert {one.stem for one in sums} == needed


def test_programs_of_boinc_see_no_secret_of_ours(bench, monkeypatch):
    monkeypatch.setenv("STOILO_SERVER_DATABASE", "mariadb://u:secret@h/d")
    project = bench.fake.project
    tool = project.tool("create_work")
    tool.write_text('#!/bin/sh\nenv > "$BOINC_PROJECT_DIR/seen"\n')
    create_work(project, [], [])
    seen = (bench.fake.root / "seen").read_text()
    assert "secret" not in seen
    assert "PATH=" in seen


def test_figures_are_counted_once_a_minute(bench):
    create(bench, "w_1")
    bench.fetch(1)
    assert bench.engine.figures().results == {("in_progress", "none"): 1}
    create(bench, "w_2")
    assert bench.engine.figures().workunits == 1
    bench.pass_time(60)
    assert bench.engine.figures().workunits == 2


def test_figures_are_those_of_open_workunits(bench):
    create(bench, "w_1", "w_2")
    first, _ = bench.fetch(1)
    bench.finish(1, first, b"x")
    bench.settle()
    found = bench.engine.figures()
    assert (found.workunits, sum(found.results.values())) == (1, 1)
    assert found.to_validate == 0
