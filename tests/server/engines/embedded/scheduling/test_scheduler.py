from __future__ import annotations

import pytest
from engine_bench import BASE, EmbeddedBench
from sqlalchemy import select

from stoilo.core.boinc.messages import (
    OtherResult,
    ReportedResult,
    ResultState,
    SchedulerRequest,
    Wishes,
)
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.files.mirrors import DOWNLOAD_FAILED
from stoilo.server.engines.embedded.scheduling import dispatch, hosts
from stoilo.server.engines.embedded.web.requests import RESULTS_PER_REQUEST
from stoilo.server.engines.interface import ResultOutcome, ResultProgress
from tests.support.engine import make_spec
from tests.support.programs import LINUX, ProgramSigner


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def make(bench, count=1, **changes):
    specs = [make_spec(f"w_{number}", **changes) for number in range(1, count + 1)]
    bench.engine.create_workunits(specs)


def test_unknown_key_gets_a_notice_no_work_and_no_acknowledgement(bench):
    make(bench)
    reply = bench.request(1, key="0" * 32, cpu_req_instances=1.0)
    assert reply.bad_key
    assert (reply.results, reply.acks, reply.host_id) == ((), (), 0)
    assert reply.request_delay > 60


@pytest.mark.parametrize("key", ["key", "weak_key"])
def test_both_keys_of_an_account_fetch_work(bench, key):
    make(bench)
    account = bench.engine.accounts.ensure("u1@example.org", bench.clock())
    assert bench.request(1, key=getattr(account, key), cpu_req_instances=1.0).results


def test_reply_explains_everything_that_a_copy_needs(bench):
    make(bench)
    reply = bench.request(1, cpu_req_instances=1.0)
    (result,), (workunit,), (file,) = reply.results, reply.workunits, reply.files
    assert result.workunit == workunit.name == "w_1"
    assert [ref.file_name for ref in workunit.files] == [file.name]
    assert file.url.startswith(f"{BASE}download/")
    assert file.name not in file.url  # the address is no digest that can be guessed
    assert result.deadline == bench.clock() + 300


def test_first_contact_is_told_its_id_and_later_ones_are_not(bench):
    host_id = bench.request(1).host_id
    assert host_id > 0
    assert bench.request(1, host_id=host_id).host_id == 0


def test_lost_host_id_is_found_again_by_the_hosts_own_identity(bench):
    host_id = bench.request(1).host_id
    assert bench.request(1, host_id=0).host_id == host_id


def test_host_of_another_user_is_not_taken_over(bench):
    make(bench)
    first = bench.request(1, cpu_req_instances=1.0)
    reply = bench.request(2, host_id=first.host_id)
    assert reply.host_id not in {0, first.host_id}
    assert reply.results == ()


def test_copied_state_becomes_a_host_of_its_own(bench):
    host_id = bench.request(1, rpc_seqno=10).host_id
    clone = bench.request(1, host_id=host_id, rpc_seqno=3).host_id
    assert clone not in {0, host_id}
    after = bench.request(1, host_id=clone, cpid="f" * 32, rpc_seqno=1)
    assert after.host_id in (0, clone)


def test_client_attached_again_is_the_host_that_it_was(bench):
    make(bench)
    host_id = bench.request(1, rpc_seqno=50).host_id
    first = bench.request(1, host_id=host_id, rpc_seqno=51, cpu_req_instances=1.0)
    again = bench.request(1, host_id=0, rpc_seqno=0)
    assert again.host_id == host_id
    assert again.results == first.results
    assert bench.request(1, host_id=host_id, rpc_seqno=0).host_id == 0


STOCK = {"own_program": False, "platforms": (LINUX,), "cpu_req_instances": 1.0}


@pytest.fixture
def stock(bench):
    """A project with programs for stock clients."""
    signer = ProgramSigner()
    bench.engine.set_programs([signer.program()], signer.key)
    return bench


def test_stock_client_with_work_is_left_alone_and_an_idle_one_called_soon(stock):
    make(stock)
    busy = stock.request(1, **STOCK)
    held = tuple(OtherResult(result.name) for result in busy.results)
    idle = stock.request(1, **STOCK, other_results=held)
    assert (len(held), idle.results) == (1, ())
    assert busy.next_rpc_delay > 10 > idle.next_rpc_delay > 0


def test_client_without_work_for_long_is_called_seldom_until_there_is_some(stock):
    stock.request(1, **STOCK)
    stock.pass_time(1000)
    assert stock.request(1, **STOCK).next_rpc_delay == 60.0
    make(stock)
    (result,) = stock.request(1, **STOCK).results
    held = (OtherResult(result.name),)
    assert stock.request(1, **STOCK, other_results=held).next_rpc_delay < 10


def test_client_that_was_reset_gets_copy_and_program_again(stock):
    make(stock)
    first = stock.request(1, **STOCK)
    again = stock.request(1, **{**STOCK, "cpu_req_instances": 0.0})
    assert again.results == first.results
    assert again.app_versions == first.app_versions
    assert again.files == first.files


def test_what_a_host_says_of_a_failure_is_logged_cut_and_escaped(bench, caplog):
    caplog.set_level("INFO")
    make(bench)
    (copy,) = bench.fetch(1)
    text = "x" * 10_000 + "\nroot: forged line"
    report = ReportedResult(copy, ResultState.COMPUTE_ERROR, 195, stderr=text)
    for _ in range(2):  # a repeated report is no news
        bench.request(1, results=(report,))
    (line,) = [one for one in caplog.messages if copy in one]
    assert "exit status 195" in line
    assert "\n" not in line
    assert len(line) < 600


def test_client_that_can_run_nothing_calls_seldom(bench):
    reply = bench.request(1, **STOCK)
    assert (reply.request_delay, reply.next_rpc_delay) == (600.0, 0.0)


def test_project_without_programs_makes_them_for_who_asks(bench):
    bench.engine.scheduler.on_lack = lambda: ("they are being made", 60.0)
    reply = bench.request(1, **STOCK)
    assert (reply.messages, reply.request_delay) == (("they are being made",), 60.0)
    assert bench.request(2, own_program=True).messages == ()


def test_strange_platform_makes_no_project_freeze_anything(stock):
    stock.engine.scheduler.on_lack = lambda: pytest.fail("there are programs")
    reply = stock.request(1, **{**STOCK, "platforms": ("sparc-sun-solaris",)})
    assert "no program for your platform" in reply.messages[0]


def test_all_work_above_the_accounts_level_is_said_once_in_a_while(stock):
    make(stock, app="tensor")
    first = stock.request(1, **STOCK, rpc_seqno=1)
    later = stock.request(1, **STOCK, rpc_seqno=50)
    assert "tensor" in first.messages[0]
    assert later.messages == ()


def test_idle_project_says_nothing_of_levels(stock):
    assert stock.request(1, **STOCK).messages == ()


def test_copy_past_its_deadline_need_not_be_begun(bench):
    make(bench)
    (copy,) = bench.fetch(1)
    others = (OtherResult(copy),)
    assert bench.request(1, other_results=others).aborts_unstarted == ()
    bench.pass_time(400)
    bench.settle()
    reply = bench.request(1, other_results=others)
    assert (reply.aborts, reply.aborts_unstarted) == ((), (copy,))


def test_account_past_its_number_of_hosts_gets_no_more(bench, monkeypatch):
    monkeypatch.setattr(hosts, "MAX_HOSTS", 1)
    known = bench.request(1).host_id
    refused = bench.request(1, cpid="a" * 32)
    assert refused.host_id == 0
    assert "STO-E017" in refused.messages[0]
    assert bench.request(1, host_id=known).messages == ()


def test_lost_copy_is_sent_again_unchanged(bench):
    make(bench)
    first = bench.request(1, cpu_req_instances=1.0).results
    again = bench.request(1, dont_send_work=True)
    assert again.results == first
    assert again.files
    assert again.uploads
    assert again.workunits


def test_copy_that_the_host_still_has_is_not_sent_again(bench):
    make(bench)
    assert bench.fetch(1)
    assert bench.request(1, other_results=bench.held(1)).results == ()


@pytest.mark.parametrize(
    ("asked", "given"), [(0.0, 0), (0.5, 1), (3.0, 3), (1e300, 16)]
)
def test_copies_handed_out_follow_what_is_asked(bench, asked, given):
    make(bench, count=20)
    assert len(bench.request(1, cpu_req_instances=asked).results) == given


def test_host_holds_a_bounded_number_of_copies(bench):
    make(bench, count=20)
    got = [bench.fetch(1, room=16, ncpus=1) for _ in range(3)]
    assert [len(names) for names in got] == [4, 0, 0]


def test_level_above_the_accounts_is_not_sent(bench):
    make(bench, app="numeric")
    assert bench.fetch(1) == []
    assert len(bench.fetch(1, level="numeric")) == 1


def test_one_machine_under_two_accounts_gets_one_copy(bench):
    make(bench)
    assert bench.fetch(1, cpid="a" * 32)
    assert bench.request(2, cpid="a" * 32, cpu_req_instances=8.0).results == ()


def test_report_of_somebody_elses_copy_is_acknowledged_and_ignored(bench):
    make(bench)
    (copy,) = bench.fetch(1)
    bench.fail(2, copy)
    assert bench.engine.status("w_1").results[0].state is ResultProgress.IN_PROGRESS


def test_success_without_the_file_is_an_error_of_the_host(bench):
    make(bench)
    (copy,) = bench.fetch(1)
    bench.report(1, copy)
    status = bench.engine.status("w_1").results[0]
    assert (status.outcome, status.code) == (ResultOutcome.CLIENT_ERROR, "STO-E021")


def test_repeated_and_unknown_reports_are_acknowledged(bench):
    make(bench)
    (copy,) = bench.fetch(1)
    for _ in range(2):
        bench.fail(1, copy)
    bench.fail(1, "never_heard_of")
    assert bench.engine.status("w_1").results[0].outcome is ResultOutcome.CLIENT_ERROR


def test_second_report_does_not_turn_an_error_into_a_success(bench):
    make(bench)
    (copy,) = bench.fetch(1)
    bench.upload(copy, b"x")
    bench.fail(1, copy)
    bench.report(1, copy)
    assert bench.engine.status("w_1").results[0].outcome is ResultOutcome.CLIENT_ERROR


def test_reports_and_copies_in_one_call(bench):
    make(bench, count=2)
    first, _ = bench.fetch(1)
    bench.upload(first, b"x")
    report = ReportedResult(first, ResultState.UPLOADED)
    reply = bench.request(1, results=(report,), cpu_req_instances=4.0)
    assert reply.acks == (first,)


def test_release_of_today_goes_out_with_every_copy(bench):
    make(bench, count=2)
    bench.engine.set_release(b'{"metadata/root.json":"AA=="}')
    first = bench.request(1, cpu_req_instances=1.0)
    bench.engine.set_release(b'{"metadata/root.json":"AQ=="}')
    second = bench.request(2, cpu_req_instances=1.0)
    names = [
        next(
            ref.file_name
            for ref in reply.workunits[0].files
            if ref.open_name == "release"
        )
        for reply in (first, second)
    ]
    assert names[0] != names[1]


def test_old_releases_go_away_and_recent_ones_stay(bench):
    for number in range(6):
        bench.engine.set_release(b'{"metadata/%d.json":"AA=="}' % number)
    with bench.engine._database.read() as connection:
        kept = connection.scalars(select(schema.files.c.digest)).all()
    assert len(kept) == 3


def test_files_of_a_finished_workunit_go_away(bench):
    make(bench)
    reply = bench.request(1, cpu_req_instances=1.0)
    token = reply.files[0].url.rpartition("/")[2]
    assert bench.engine.find_download(token) is not None
    bench.engine.cancel("w_1")
    bench.settle()
    assert bench.engine.find_download(token) is None


def test_shared_file_stays_while_another_workunit_needs_it(bench):
    make(bench, count=2)
    token = bench.request(1, cpu_req_instances=1.0).files[0].url.rpartition("/")[2]
    bench.engine.cancel("w_1")
    bench.settle()
    assert bench.engine.find_download(token) is not None


def test_keys_are_not_in_the_database(clock, tmp_path):
    bench = EmbeddedBench(tmp_path / "engine", clock)
    account = bench.engine.accounts.ensure("u1@example.org", bench.clock())
    bench.engine.close()
    stored = b"".join(
        path.read_bytes() for path in (tmp_path / "engine").glob("*sqlite*")
    )
    assert account.email.encode() in stored
    assert account.key.encode() not in stored
    assert account.weak_key.encode() not in stored


def test_request_record_hides_nothing_but_is_never_logged(bench, caplog):
    caplog.set_level("DEBUG")
    account = bench.engine.accounts.ensure("u1@example.org", bench.clock())
    bench.request(1, cpu_req_instances=1.0)
    assert account.weak_key not in caplog.text
    assert isinstance(SchedulerRequest("", 0, 0, "a"), SchedulerRequest)


def test_copy_of_an_ended_workunit_need_not_be_begun_and_costs_no_record(bench):
    make(bench, redundancy=Redundancy(target_results=3))
    bench.set_record(3, 7)
    copies = [bench.fetch(user)[0] for user in (1, 2, 3)]
    for user in (1, 2):
        bench.finish(user, copies[user - 1], b"x")
    bench.settle()
    reply = bench.request(3, other_results=(OtherResult(copies[2]),))
    assert (reply.aborts, reply.aborts_unstarted) == ((), (copies[2],))
    bench.report(3, copies[2], ResultState.ABORTED, 202)
    bench.settle()
    assert bench.engine.status("w_1").results[2].outcome is ResultOutcome.ABORTED
    assert bench.record(3) == 7
    assert list((bench.directory / "uploads").iterdir()) == []


def test_copy_of_an_open_workunit_is_to_be_begun(bench):
    make(bench)
    (copy,) = bench.fetch(1)
    reply = bench.request(1, other_results=(OtherResult(copy),))
    assert (reply.aborts, reply.aborts_unstarted) == ((), ())


def test_copy_that_the_project_still_wants_is_not_called_off_by_its_host(bench):
    make(bench)
    bench.set_record(1, 7)
    (copy,) = bench.fetch(1)
    bench.report(1, copy, ResultState.ABORTED, 202)
    assert bench.record(1) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"level": "pure"},
        {"wishes": Wishes("pure")},
        {"wishes": Wishes(require_review=True)},
    ],
)
def test_copy_that_is_no_longer_allowed_is_not_sent_again(bench, change):
    make(bench, app="numeric")
    kept = {"level": "numeric", "cpu_req_instances": 1.0}
    (copy,) = bench.request(1, **kept).results
    assert bench.request(1, **kept).results == (copy,)
    assert bench.request(1, **{**kept, **change}).results == ()


def test_host_of_any_size_can_name_all_that_it_holds(bench, monkeypatch):
    assert dispatch.MOST_HELD <= RESULTS_PER_REQUEST // 2
    monkeypatch.setattr(dispatch, "MOST_HELD", 10)
    make(bench, count=20)
    got = [bench.fetch(1, room=8, ncpus=4096) for _ in range(3)]
    assert [len(names) for names in got] == [8, 2, 0]


def test_host_goes_on_with_its_copies_under_the_new_key(bench):
    bench.engine.create_workunits([make_spec("w_1")])
    (copy,) = bench.fetch(1)
    old = bench.engine.accounts.ensure("u1@example.org", 1)
    (host,) = bench.engine.roster.list_hosts(email=old.email)
    bench.engine.accounts.change_keys(old.user_id)
    assert bench.request(1, key=old.weak_key).bad_key
    assert bench.request(1, key=old.key).bad_key
    bench.finish(1, copy, b"x")
    assert bench.engine.roster.list_hosts(email=old.email) == (host,)
    assert bench.engine.status("w_1").results[0].outcome is ResultOutcome.SUCCESS


@pytest.mark.parametrize(("which", "kept"), [("key", True), ("weak_key", False)])
def test_weak_key_changes_no_global_preferences(bench, which, kept):
    account = bench.engine.accounts.ensure("u1@example.org", 1)
    sent = f"<mod_time>{bench.clock()}</mod_time><start_hour>8</start_hour>"
    key = getattr(account, which)
    bench.request(1, key=key, own_program=False, global_preferences=sent)
    reply = bench.request(1, own_program=False)
    assert bool(reply.global_preferences) is kept


def ask_and_report(bench, copy, exit_status):
    """Report a failed copy and ask for work in one call; return what comes."""
    failed = ReportedResult(copy, ResultState.COMPUTE_ERROR, exit_status)
    return bench.request(1, cpu_req_instances=8.0, results=(failed,))


def test_call_that_reports_a_failed_download_gets_new_copies_at_the_next(bench):
    make(bench, 3)
    (copy,) = bench.fetch(1, room=1)
    reply = ask_and_report(bench, copy, DOWNLOAD_FAILED)
    assert (reply.acks, reply.results) == ((copy,), ())
    assert len(bench.fetch(1)) == 2


def test_call_that_reports_another_failure_gets_new_copies_at_once(bench):
    make(bench, 3)
    (copy,) = bench.fetch(1, room=1)
    assert len(ask_and_report(bench, copy, 1).results) == 2


def test_failed_download_does_not_keep_back_what_was_lost(bench):
    make(bench, 3)
    copy, other = bench.fetch(1, room=2)
    reply = ask_and_report(bench, copy, DOWNLOAD_FAILED)
    assert [one.name for one in reply.results] == [other]
