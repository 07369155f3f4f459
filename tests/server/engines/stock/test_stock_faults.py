"""What breaks around a stock engine: no workunit is lost, none ends twice."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from stock_bench import StockBench

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome
from stoilo.server.engines.questions import refusal_cap
from tests.support.engine import make_spec
from tests.support.mariadb import MariaServer
from tests.support.stocktools.creatework import FAULT
from tests.support.stocktools.daemons import AssimilatorEnded, FakeDaemons
from tests.support.stocktools.hosts import FakeHosts

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=1, max_total=3, max_success=3
)
NAMES = [f"w_{number}" for number in range(4)]

pytestmark = pytest.mark.slow  # each of BOINC's calls is a process


@pytest.fixture
def bench(tmp_path, clock):
    made = StockBench(tmp_path / "project", clock)
    yield made
    made.close()


def create(bench, *names, **spec):
    bench.engine.create_workunits([make_spec(name, **spec) for name in names])


def in_boinc(bench):
    rows = bench.daemons._database.rows("SELECT name FROM workunit ORDER BY id")
    return [row.name for row in rows]


def break_create_work(bench, **fault):
    (bench.fake.root / FAULT).write_text(json.dumps(fault))


def answer(bench, *users, body=b"x"):
    for user in users:
        for copy in bench.fetch(user):
            bench.finish(user, copy, body)
    bench.settle()


def look_around(bench):
    bench.settle()
    bench.pass_time(60)
    bench.settle()


def test_create_work_that_dies_half_way_leaves_nothing_out_and_nothing_twice(bench):
    break_create_work(bench, rows=1, statements=2)
    create(bench, *NAMES, redundancy=SINGLE)
    assert sorted(in_boinc(bench)) == NAMES
    answer(bench, 1)
    assert all(bench.outcomes.calls[name] == 1 for name in NAMES)


def test_create_work_that_does_nothing_is_called_again_later(bench):
    break_create_work(bench, rows=1, statements=0)
    tool = bench.fake.project.tool("create_work")
    aside = tool.rename(tool.with_suffix(".aside"))
    create(bench, "w_1")
    assert "create_work" in bench.engine.status("w_1").explanation
    aside.rename(tool)
    bench.pass_time(60)
    for _ in range(2):  # the fault is still to come once
        bench.settle()
        bench.pass_time(60)
    bench.settle()
    assert in_boinc(bench) == ["w_1"]


def test_workunit_that_cannot_be_made_stops_no_other(bench):
    tool = bench.fake.project.tool("create_work")
    aside = tool.rename(tool.with_suffix(".aside"))
    create(bench, "w_1", data=b"to be lost")
    for file in bench.fake.project.download.rglob("stoilo_*"):
        file.unlink()
    create(bench, "w_2", "w_3")
    aside.rename(tool)
    bench.pass_time(60)
    bench.settle()
    assert in_boinc(bench) == ["w_2", "w_3"]
    assert "create_work" in bench.engine.status("w_1").explanation


def test_engine_that_died_before_it_knew_what_was_made_makes_nothing_twice(bench):
    create(bench, "w_1", "w_2")
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql("UPDATE stoilo_workunit SET boinc_id = 0")
    bench.restart()
    bench.settle()
    assert in_boinc(bench) == ["w_1", "w_2"]
    answer(bench, 1, 2)
    assert bench.outcomes.calls == {"w_1": 1, "w_2": 1}


def test_names_that_boinc_has_already_do_not_stop_the_others(bench):
    create(bench, "w_3")
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql("DELETE FROM stoilo_need")
        connection.exec_driver_sql("DELETE FROM stoilo_workunit")
    create(bench, *NAMES)
    assert sorted(in_boinc(bench)) == NAMES


def test_fake_refuses_a_whole_statement_for_one_duplicate(bench):
    """The fake is as unkind as the original, or the tests above would prove nothing."""
    create(bench, "w_1")
    own = bench.daemons._database.row("SELECT * FROM stoilo_workunit")
    line = own.line.removeprefix("--wu_name w_1 ")
    done = subprocess.run(
        [bench.fake.project.tool("create_work"), "--appname", "pure", "--stdin"],
        input=f"--wu_name w_2 {line}\n--wu_name w_1 {line}\n",
        capture_output=True,
        text=True,
        cwd=bench.fake.root,
        check=False,
    )
    assert done.returncode == 1
    assert "insert_batch() failed" in done.stderr
    assert in_boinc(bench) == ["w_1"]


def test_cancellation_lost_in_the_validators_pass_is_repeated(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"broken")
    bench.daemons.between = lambda: bench.engine.cancel("w_1")
    bench.daemons.transition()
    bench.daemons.validate()
    bench.daemons.between = lambda: None
    row = "SELECT error_mask FROM workunit"
    assert bench.daemons._database.row(row).error_mask == 0  # lost, as BOINC loses it
    bench.settle()
    assert bench.daemons._database.row(row).error_mask & 16
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANCELLED
    assert bench.outcomes.calls["w_1"] == 1


def test_assimilator_that_died_after_its_script_asks_again_for_nothing(bench):
    create(bench, "w_1", redundancy=SINGLE)
    answer(bench, 1)
    bench.daemons._database.run("UPDATE workunit SET assimilate_state = 1")
    bench.settle()
    assert bench.outcomes.calls["w_1"] == 1


def test_end_that_nobody_told_of_is_found(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.daemons.transition()
    bench.daemons.validate()
    bench.daemons._database.run("UPDATE workunit SET assimilate_state = 2")
    look_around(bench)
    assert bench.outcomes.bodies["w_1"] == b"x"


def test_end_that_boinc_holds_without_a_result_is_looked_at_ever_more_rarely(
    bench, caplog
):
    create(bench, "w_1", redundancy=SINGLE)
    bench.fetch(1)
    bench.daemons._database.run("UPDATE workunit SET assimilate_state = 2")
    for _ in range(20):
        bench.pass_time(30)
        bench.engine.step()
    assert 2 <= caplog.text.count("which goes on") <= 5
    bench.daemons._database.run("UPDATE workunit SET error_mask = 2")
    bench.pass_time(3600)
    bench.engine.step()
    assert bench.engine.status("w_1").outcome is OutcomeKind.TOO_MANY_ERRORS


def test_workunit_that_is_gone_from_boinc_is_made_anew(bench):
    create(bench, "w_1", redundancy=SINGLE)
    bench.daemons._database.run("DELETE FROM workunit")
    look_around(bench)
    answer(bench, 1)
    assert bench.outcomes.calls["w_1"] == 1


def test_slow_server_holds_no_daemon_of_boincs_up_and_gets_the_files_later(bench):
    bench.outcomes.refuse = 1
    create(bench, "w_1", "w_2", redundancy=SINGLE)
    answer(bench, 1)
    assert bench.daemons.delete_files() is False  # done already: BOINC went on
    assert not list(bench.fake.project.upload.rglob("w_*"))
    bench.restart()
    bench.settle()
    assert bench.outcomes.bodies == {"w_1": b"x", "w_2": b"x"}
    assert not list((bench.fake.project.own / "kept").iterdir())


def test_full_disk_when_results_are_to_be_kept_blames_nobody_and_ends_nothing(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    kept = bench.fake.project.own / "kept"
    kept.write_bytes(b"")  # no folder can be made there, as on a full disk
    bench.settle()
    assert bench.engine.status("w_1").outcome is None
    assert bench.engine.status("w_1").results[0].outcome is ResultOutcome.SUCCESS
    kept.unlink()
    bench.pass_time(60)
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


FULL_DISK = """
import resource, sys
sys.path[:0] = {folders!r}
from pathlib import Path
from stock_bench import StockBench
from test_stock_faults import create, in_boinc
from stoilo.core.errors import InternalError
bench = StockBench(Path({place!r}), lambda: 1_700_000_000)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
try:
    create(bench, "w_1", data=b"x" * 100_000)
except InternalError as error:
    print(error.code)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
print(bench.engine.status("w_1"))
create(bench, "w_1", data=b"x" * 100_000)
print(in_boinc(bench))
bench.close()
"""


def test_full_disk_at_creation_stores_nothing(tmp_path):
    """In a process of its own: the limit holds for everything that a process writes."""
    folder = Path(__file__).parent
    folders = [str(folder), str(folder.parent)]
    source = FULL_DISK.format(folders=folders, place=str(tmp_path / "full"))
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, check=False, text=True
    )
    assert done.stdout.split("\n") == ["STO-R030", "None", "['w_1']", ""], done.stderr


def test_project_that_is_stopped_takes_no_end(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    bench.daemons.transition()
    bench.daemons.validate()
    bench.engine.close()
    (bench.fake.root / "stop_daemons").touch()
    with pytest.raises(AssimilatorEnded):
        bench.daemons.assimilate()
    (bench.fake.root / "stop_daemons").unlink()
    bench.engine = bench.open()
    bench.settle()
    assert bench.outcomes.calls["w_1"] == 1


def test_refusals_cost_the_host_nothing(bench):
    create(bench, "w_1", "w_2", "w_3", redundancy=SINGLE)
    good, refused, _ = bench.fetch(1)
    bench.finish(1, good, b"x")
    bench.settle()
    before = bench.hosts.record(1)
    bench.finish(1, refused, b"optin")
    bench.settle()
    assert bench.hosts.record(1) == before == (501, 1)
    assert bench.engine.status("w_2").results[0].outcome is ResultOutcome.REFUSED


def test_bad_result_costs_its_host_what_boinc_takes(bench):
    create(bench, "w_1", "w_2", redundancy=SINGLE)
    good, bad = bench.fetch(1)
    for copy, body in ((good, b"x"), (bad, b"bad")):
        bench.finish(1, copy, body)
        bench.settle()
    assert bench.hosts.record(1) == (500, 0)


def test_errors_and_refusals_together_end_at_the_limit_of_errors(bench):
    create(bench, "w_1", redundancy=SINGLE)
    for user, body in enumerate((b"optin", b"bad", b"optin", b"bad"), 1):
        (copy,) = bench.fetch(user)
        bench.finish(user, copy, body)
        bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.TOO_MANY_ERRORS
    assert bench.outcomes.outcomes["w_1"].code == "STO-R057"
    assert refusal_cap(3) == 10


def test_quorum_of_three_is_three_and_not_boincs_majority(bench):
    redundancy = Redundancy(
        min_quorum=3, target_results=3, max_error=3, max_total=5, max_success=5
    )
    create(bench, "w_1", redundancy=redundancy)
    for user, body in enumerate((b"true", b"true", b"lie"), 1):
        (copy,) = bench.fetch(user)
        bench.finish(user, copy, body)
    bench.settle()
    assert bench.outcomes.kind("w_1") is None
    answer(bench, 4, body=b"true")
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL
    assert len(bench.outcomes.outcomes["w_1"].valid) == 3


def test_admission_that_ends_while_copies_are_out_allows_no_further_one(bench):
    redundancy = Redundancy(delay_bound_s=100)
    end = bench.engine.now() + 200
    create(bench, "w_1", redundancy=redundancy, not_after=end)
    first, second = bench.fetch(1)[0], bench.fetch(2)[0]
    bench.pass_time(97)
    bench.settle()
    bench.finish(1, first, b"x")
    bench.finish(2, second, b"y")
    bench.settle()
    assert bench.fetch(3) == []
    assert bench.outcomes.kind("w_1") is OutcomeKind.ADMISSION_ENDED


def test_copies_issued_later_carry_the_release_of_then(bench):
    bench.engine.set_release(b'{"metadata/root.json":"AA=="}')
    create(bench, "w_1")
    before = bench.daemons._database.row("SELECT xml_doc FROM workunit").xml_doc
    bench.engine.set_release(b'{"metadata/root.json":"AQ=="}')
    bench.settle()
    after = bench.daemons._database.row("SELECT xml_doc FROM workunit").xml_doc
    old, new = before.decode().splitlines(), after.decode().splitlines()
    assert len(old) == len(new)
    changed = {line.split(">")[0].strip(" <") for line in set(new) - set(old)}
    assert changed == {"name", "url", "md5_cksum", "file_name"}
    answer(bench, 1, 2)
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_input_files_go_with_the_last_workunit_that_needs_them(bench):
    create(bench, "w_1", "w_2", redundancy=SINGLE)
    (copy, other) = bench.fetch(1)
    bench.finish(1, copy, b"x")
    look_around(bench)
    files = [one for one in bench.fake.project.download.rglob("*") if one.is_file()]
    assert len(files) == 2  # shared by both, and its checksum
    bench.finish(1, other, b"x")
    look_around(bench)
    assert not any(one.exists() for one in files)


def test_app_that_the_project_has_not_is_refused(bench):
    with pytest.raises(UsageError, match="STO-B008"):
        create(bench, "w_1", app="gpu")


def test_database_that_is_started_anew_is_found_again(tmp_path, clock):
    with (
        MariaServer() as server,
        closing(
            StockBench(tmp_path / "project", clock, server.create_database())
        ) as bench,
    ):
        create(bench, "w_1", redundancy=SINGLE)
        (copy,) = bench.fetch(1)
        bench.finish(1, copy, b"x")
        with unclosed_sockets_of_the_driver():
            server.kill()
            with pytest.raises(InternalError, match="STO-R112"):
                bench.engine.cancel("w_1")
            bench.daemons.close()
            bench.hosts.close()
        server.start()
        bench.daemons = FakeDaemons(bench.fake, bench.daemons._now)
        bench.hosts = FakeHosts(bench.fake, bench.daemons._now)
        bench.settle()
        assert bench.outcomes.bodies["w_1"] == b"x"


@contextmanager
def unclosed_sockets_of_the_driver():
    """PyMySQL leaves the socket of a failed connection to the collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
