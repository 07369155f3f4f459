"""What a stock engine says of results: of the bytes that it saw, and of nothing else."""

from __future__ import annotations

import shutil

import pytest
from stock_bench import StockBench

from stoilo.core.errors import InternalError
from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome
from stoilo.server.engines.stock.project.directory import OutputName
from tests.support.engine import BodyValidation, make_spec

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=1, max_total=3, max_success=3
)
THREE = Redundancy(
    min_quorum=3, target_results=3, max_error=3, max_total=6, max_success=6
)

pytestmark = pytest.mark.slow  # each of BOINC's calls is a process


class TroubledValidation(BodyValidation):
    """Has trouble with some bodies, and writes down what it was asked.

    Bodies in `trouble` cannot be compared the first time; those in `unsure` cannot even
    be checked.
    """

    def __init__(self):
        self.trouble = set()
        self.unsure = set()
        self.asked = []

    def check(self, result):
        self.asked.append(result.name)
        if self.body(result) in self.unsure:
            raise RuntimeError("no jail is free")
        return super().check(result)

    def compare(self, left, right):
        if found := {self.body(left), self.body(right)} & self.trouble:
            self.trouble -= found
            raise RuntimeError("no jail is free")
        return super().compare(left, right)


@pytest.fixture
def bench(tmp_path, clock):
    made = StockBench(tmp_path / "project", clock)
    made.validation = TroubledValidation()
    made.restart()
    yield made
    made.close()


def create(bench, *names, **spec):
    bench.engine.create_workunits([make_spec(name, **spec) for name in names])


def finish(bench, *bodies, first=1):
    """Let users compute one copy each; returns the copies."""
    copies = [bench.fetch(user)[0] for user, _ in enumerate(bodies, first)]
    for user, (copy, body) in enumerate(zip(copies, bodies, strict=True), first):
        bench.finish(user, copy, body)
    return copies


def agree(bench):
    """Let BOINC find its quorum, and tell nobody yet."""
    bench.daemons.transition()
    bench.daemons.validate()


def upload_of(bench, copy):
    (path,) = bench.fake.project.upload.rglob(f"{copy}_r*")
    return path


def overwrite(bench, copy, body):
    """Write into a file that is there, as BOINC's upload handler does."""
    with upload_of(bench, copy).open("r+b") as stream:
        stream.write(body)


def judge(bench):
    return bench.engine._script_server._validator


def query(bench, words, *values):
    return bench.daemons._database.rows(words, *values)


def test_result_swapped_after_the_agreement_is_delivered_as_it_was_judged(bench):
    create(bench, "w_1")
    first, _ = finish(bench, b"true", b"true")
    agree(bench)
    overwrite(bench, first, b"evil")
    bench.settle()
    assert bench.outcomes.bodies["w_1"] == b"true"
    assert len(bench.outcomes.outcomes["w_1"].valid) == 2


def test_result_swapped_between_two_rounds_is_compared_as_it_was_judged(bench):
    create(bench, "w_1")
    first, _ = finish(bench, b"true", b"lies")
    bench.settle()
    overwrite(bench, first, b"lies")
    finish(bench, b"true", first=3)
    bench.settle()
    assert bench.outcomes.bodies["w_1"] == b"true"


def test_swapped_result_of_which_no_copy_is_left_is_its_hosts_error(bench):
    create(bench, "w_1", redundancy=Redundancy(max_total=6))
    first, _ = finish(bench, b"true", b"lies")
    bench.settle()
    shutil.rmtree(bench.fake.project.own / "kept")
    overwrite(bench, first, b"lies")
    bench.daemons._database.run("UPDATE workunit SET need_validate = 1")
    bench.settle()
    assert bench.engine.status("w_1").results[0].code == "STO-R081"
    assert bench.outcomes.kind("w_1") is None


def test_swapped_canonical_result_of_which_no_copy_is_left_is_not_delivered(bench):
    create(bench, "w_1")
    first, second = finish(bench, b"true", b"true")
    agree(bench)
    shutil.rmtree(bench.fake.project.own / "kept")
    overwrite(bench, first, b"evil")
    bench.settle()
    assert bench.outcomes.outcomes["w_1"].canonical.name == second
    assert bench.outcomes.bodies["w_1"] == b"true"


def test_late_host_pays_for_no_canonical_result_that_was_swapped(bench):
    create(bench, "w_1", redundancy=Redundancy(target_results=3))
    copies = [bench.fetch(user)[0] for user in (1, 2, 3)]
    for user in (1, 2):
        bench.finish(user, copies[user - 1], b"true")
    bench.settle()
    overwrite(bench, copies[0], b"evil")
    bench.finish(3, copies[2], b"true")
    bench.settle()
    assert bench.engine.status("w_1").results[2].outcome is ResultOutcome.SUCCESS
    assert bench.hosts.record(3) == (501, 1)


def test_late_file_longer_than_a_result_may_be_is_never_read_whole(bench):
    create(bench, "w_1", redundancy=Redundancy(target_results=3), result_max_bytes=1000)
    copies = [bench.fetch(user)[0] for user in (1, 2, 3)]
    for user in (1, 2):
        bench.finish(user, copies[user - 1], b"true")
    bench.settle()
    bench.finish(3, copies[2], b"true")
    with upload_of(bench, copies[2]).open("r+b") as stream:
        stream.truncate(10**12)
    bench.settle()
    assert bench.engine.status("w_1").results[2].outcome is ResultOutcome.INVALID


def test_late_host_that_lies_is_found_out(bench):
    """The control: what was spared above is judged where it can be."""
    create(bench, "w_1", redundancy=Redundancy(target_results=3))
    copies = [bench.fetch(user)[0] for user in (1, 2, 3)]
    for user in (1, 2):
        bench.finish(user, copies[user - 1], b"true")
    bench.settle()
    bench.finish(3, copies[2], b"lies")
    bench.settle()
    assert bench.engine.status("w_1").results[2].outcome is ResultOutcome.INVALID


def test_file_that_cannot_be_read_just_now_blames_nobody(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = finish(bench, b"true")
    path = upload_of(bench, copy)
    aside = path.rename(path.with_name("aside"))
    path.symlink_to(path.name)  # to itself: an error of the system, not a lost file
    bench.settle()
    assert bench.engine.status("w_1").results[0].outcome is ResultOutcome.SUCCESS
    aside.replace(path)
    bench.pass_time(60)
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_disk_that_is_not_mounted_blames_nobody(bench):
    create(bench, "w_1", redundancy=SINGLE)
    finish(bench, b"true")
    upload = bench.fake.project.upload
    disk = upload.rename(upload.with_name("disk"))
    upload.mkdir()
    bench.settle()
    assert bench.engine.status("w_1").results[0].outcome is ResultOutcome.SUCCESS
    upload.rmdir()
    disk.rename(upload)
    bench.pass_time(60)
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_file_that_was_never_there_is_its_hosts_error(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = bench.fetch(1)
    bench.fake.project.upload.joinpath("1").mkdir()  # somebody else's
    bench.report(1, copy)
    bench.settle()
    assert bench.engine.status("w_1").results[0].code == "STO-E023"
    assert len(bench.fetch(2)) == 1


def test_file_longer_than_a_result_may_be_is_never_read_whole(bench):
    create(bench, "w_1", redundancy=SINGLE, result_max_bytes=1000)
    (copy,) = finish(bench, b"x" * 1001)
    with upload_of(bench, copy).open("r+b") as stream:
        stream.truncate(10**12)  # takes no room, and could not be copied
    bench.settle()
    assert bench.engine.status("w_1").results[0].code == "STO-R081"
    assert bench.validation.asked == []
    finish(bench, b"x" * 1000, first=2)
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL


def test_end_waits_while_a_result_that_it_rests_on_cannot_be_read(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = finish(bench, b"true")
    agree(bench)
    shutil.rmtree(bench.fake.project.own / "kept")
    path = upload_of(bench, copy)
    aside = path.rename(path.with_name("aside"))
    path.symlink_to(path.name)
    with pytest.raises(InternalError, match="STO-R030"):
        bench.engine._script_assimilator.hear(name="w_1")
    assert bench.engine.status("w_1").outcome is None
    aside.replace(path)
    bench.settle()
    assert bench.outcomes.bodies["w_1"] == b"true"


def test_workunit_whose_number_is_not_noted_yet_is_known_by_its_name(bench):
    create(bench, "w_1", "w_2", redundancy=SINGLE)
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql("UPDATE stoilo_workunit SET boinc_id = 0")
    good, bad = bench.fetch(1)
    bench.finish(1, good, b"true")
    bench.fail(1, bad)
    bench.daemons.step()
    assert query(bench, "SELECT id FROM workunit WHERE assimilate_state = 1") == []
    assert bench.engine.status("w_1").outcome is OutcomeKind.CANONICAL


def test_failure_of_a_workunit_whose_number_is_not_noted_yet_is_taken(bench):
    redundancy = Redundancy(max_error=1)
    create(bench, "w_1", redundancy=redundancy)
    copies = [bench.fetch(user)[0] for user in (1, 2)]
    with bench.engine._database.write() as connection:
        connection.exec_driver_sql("UPDATE stoilo_workunit SET boinc_id = 0")
    for user, copy in enumerate(copies, 1):
        bench.fail(user, copy)
    for _ in range(3):
        bench.daemons.step()
    assert bench.engine.status("w_1").outcome is OutcomeKind.TOO_MANY_ERRORS


def test_refusal_costs_the_task_nothing_when_the_database_refuses_in_between(bench):
    create(bench, "w_1", redundancy=SINGLE)
    (copy,) = finish(bench, b"optin")
    output = OutputName(upload_of(bench, copy).name, copy)
    database = bench.daemons._database
    database.run(
        "CREATE TRIGGER no BEFORE UPDATE OF max_error_results ON workunit"
        " BEGIN SELECT RAISE(ABORT, 'not now'); END"
    )
    with pytest.raises(InternalError, match="STO-R030"):
        judge(bench).check(output)
    database.run("DROP TRIGGER no")
    bench.settle()
    (row,) = query(bench, "SELECT * FROM workunit")
    assert (row.max_error_results, row.max_total_results) == (2, 4)


def test_refusal_lifts_no_bound_of_an_admission_that_ends(bench):
    redundancy = Redundancy(delay_bound_s=100)
    end = bench.engine.now() + 200
    create(bench, "w_1", redundancy=redundancy, not_after=end)
    first, second = bench.fetch(1)[0], bench.fetch(2)[0]
    bench.pass_time(97)
    bench.settle()
    bench.finish(1, first, b"optin")
    bench.finish(2, second, b"true")
    bench.settle()
    (row,) = query(bench, "SELECT * FROM workunit")
    assert row.max_total_results == 2
    assert bench.outcomes.kind("w_1") is OutcomeKind.ADMISSION_ENDED


def test_questions_are_put_again_after_twice_as_long_each_time(bench):
    create(bench, "w_1", redundancy=SINGLE)
    finish(bench, b"broken")
    bench.settle()
    for number, wait in enumerate((60, 120, 240), 2):
        bench.pass_time(wait - 1)
        bench.settle()
        assert len(bench.validation.asked) == number - 1
        bench.pass_time(1)
        bench.settle()
        assert len(bench.validation.asked) == number


def test_trouble_of_ours_with_one_of_three_is_no_disagreement(bench):
    """Called one, BOINC's majority would be the third's two, and the second a liar."""
    create(bench, "w_1", redundancy=THREE)
    bench.validation.trouble = {b"true~"}
    finish(bench, b"true", b"true", b"true~")
    bench.settle()
    bench.pass_time(60)
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL
    assert len(bench.outcomes.outcomes["w_1"].valid) == 3


@pytest.mark.parametrize("before", [b"bad", b"optin", b"lies"])
def test_workunit_made_anew_inherits_nothing(bench, before):
    create(bench, "w_1")
    finish(bench, before, b"true")
    bench.settle()
    bench.daemons._database.run("DELETE FROM workunit")
    bench.daemons._database.run("DELETE FROM result")
    bench.pass_time(60)
    bench.settle()
    finish(bench, b"next", b"next", first=3)
    bench.settle()
    assert bench.outcomes.bodies["w_1"] == b"next"
    assert len(bench.outcomes.outcomes["w_1"].valid) == 2


def test_workunit_made_anew_when_its_admission_ends_is_given_to_nobody(bench):
    redundancy = Redundancy(delay_bound_s=100)
    end = bench.engine.now() + 200
    create(bench, "w_1", redundancy=redundancy, not_after=end)
    for user in (1, 2):
        bench.fetch(user)
    bench.pass_time(97)
    bench.settle()
    bench.daemons._database.run("DELETE FROM workunit")
    bench.daemons._database.run("DELETE FROM result")
    bench.pass_time(60)
    bench.settle()
    assert bench.fetch(3) == []
    assert bench.outcomes.kind("w_1") is OutcomeKind.ADMISSION_ENDED


def test_end_of_a_workunit_that_was_hard_to_make_is_as_patient_as_any(bench):
    tool = bench.fake.project.tool("create_work")
    aside = tool.rename(tool.with_suffix(".aside"))
    create(bench, "w_1")
    aside.rename(tool)
    bench.pass_time(600)
    bench.settle()
    (row,) = query(bench, "SELECT * FROM stoilo_workunit")
    assert row.boinc_id
    assert (row.attempts, row.retry_at) == (0, 0)


def fail_beside(bench, body):
    """Let a workunit fail whose one result is `body`, and another one succeed."""
    create(bench, "w_1", redundancy=Redundancy(max_error=1))
    finish(bench, body)
    for user in (2, 3):
        (copy,) = bench.fetch(user)
        bench.fail(user, copy)
    create(bench, "w_2", redundancy=SINGLE)
    finish(bench, b"true", first=9)
    bench.settle()


def test_end_that_cannot_be_decided_yet_holds_no_other_up(bench):
    bench.validation.unsure = {b"late"}
    fail_beside(bench, b"late")
    assert bench.outcomes.kind("w_2") is OutcomeKind.CANONICAL
    assert bench.engine.status("w_1").outcome is None
    assert not query(bench, "SELECT id FROM workunit WHERE assimilate_state = 1")
    assert not list(bench.fake.project.upload.rglob("w_1*"))  # BOINC has gone on
    bench.validation.unsure = set()
    bench.pass_time(60)
    bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.TOO_MANY_ERRORS
    assert len(bench.outcomes.outcomes["w_1"].valid) == 1


def test_failure_whose_results_can_never_be_judged_ends_without_them(bench):
    bench.validation.unsure = {b"late"}
    fail_beside(bench, b"late")
    for _ in range(6):
        assert bench.outcomes.kind("w_1") is None
        bench.pass_time(3600)
        bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.TOO_MANY_ERRORS
    assert bench.outcomes.outcomes["w_1"].valid == ()
