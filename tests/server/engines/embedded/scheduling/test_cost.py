"""What a call costs: statements, transactions, and what is not written."""

from __future__ import annotations

import contextlib

import pytest
from engine_bench import EmbeddedBench
from sqlalchemy import event, select

from stoilo.core.boinc.messages import (
    HostInfo,
    OtherResult,
    ReportedResult,
    ResultState,
)
from stoilo.core.types import Redundancy
from stoilo.server.db.store import is_writing
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import NeedsWritingError, must_write
from stoilo.server.engines.embedded.scheduling import reports
from stoilo.server.engines.embedded.scheduling.hosts import SEEN_EVERY_S, HostActivity
from stoilo.server.engines.interface import ResultProgress
from tests.support.engine import OutcomeRecorder, make_spec
from tests.support.programs import LINUX, ProgramSigner

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=3, max_total=6, max_success=3
)
STOCK = {"own_program": False, "platforms": (LINUX,), "cpu_req_instances": 1.0}
SAID = {**STOCK, "host": HostInfo(domain_name="h", memory_bytes=1e9)}
BEGINNINGS = ("BEGIN", "SELECT GET_LOCK", "SELECT RELEASE_LOCK")


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    signer = ProgramSigner()
    made.engine.set_programs([signer.program()], signer.key)
    made.engine.accounts.ensure("u1@example.org", clock())
    yield made
    made.engine.close()


@contextlib.contextmanager
def statements(bench):
    """Yield the statements that are run meanwhile, those of transactions left out."""
    said = []
    database = bench.engine._database
    engines = {database.engine, database._writer}

    def note(_connection, _cursor, statement, *_):
        if not statement.startswith(BEGINNINGS):
            said.append(statement)

    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    yield said
    for engine in engines:
        event.remove(engine, "before_cursor_execute", note)


def make(bench, count, **changes):
    specs = [make_spec(f"w_{number}", **changes) for number in range(count)]
    bench.engine.create_workunits(specs)


def call(bench, **fields):
    """Call as a known host: the account is there, so nothing is asked for it."""
    account = bench.engine.accounts.ensure("u1@example.org", bench.clock())
    return bench.request(1, level=None, key=account.key, **fields)


def cost(bench, **fields):
    """Return reply and statements of one call, apart from finding the test's account."""
    with statements(bench) as of_account:
        bench.engine.accounts.ensure("u1@example.org", bench.clock())
    with statements(bench) as said:
        reply = call(bench, **fields)
    return reply, said[2 * len(of_account) :]


def writes(said):
    return [one for one in said if not one.startswith("SELECT")]


@pytest.mark.parametrize("kind", [STOCK, SAID, {"cpu_req_instances": 1.0}, {}])
def test_idle_poll_costs_at_most_four_statements_and_writes_nothing(bench, kind):
    host = call(bench, **kind).host_id
    bench.seqno += 10  # the first calls bring notices
    reply, said = cost(bench, host_id=host, **kind)
    assert reply.results == ()
    assert len(said) <= 4
    assert writes(said) == []


def test_call_for_work_that_is_there_writes(bench):
    make(bench, 1)
    host = call(bench).host_id
    reply, said = cost(bench, host_id=host, cpu_req_instances=1.0)
    assert reply.results
    assert writes(said)


def test_reports_cost_as_many_statements_as_one(bench):
    make(bench, 60)
    host = call(bench).host_id
    copies = []
    while len(copies) < 40:
        held = tuple(OtherResult(copy) for copy in copies)
        asked = {"cpu_req_instances": 16.0, "other_results": held}
        copies += [one.name for one in call(bench, host_id=host, **asked).results]
    for copy in copies:
        bench.upload(copy, b"same")
    finished = [ReportedResult(copy, ResultState.UPLOADED, 0, 1.0) for copy in copies]
    rest = tuple(OtherResult(copy) for copy in copies[1:])
    _, one = cost(bench, host_id=host, results=finished[:1], other_results=rest)
    _, many = cost(bench, host_id=host, results=tuple(finished[1:]))
    assert len(many) <= len(one)


def test_failures_in_one_call_cost_as_many_statements_as_one(bench):
    make(bench, 8)
    first = call(bench, cpu_req_instances=8.0)
    names = [one.name for one in first.results]
    failed = [ReportedResult(name, ResultState.COMPUTE_ERROR, 1) for name in names]
    rest = tuple(OtherResult(name) for name in names[1:])
    _, one = cost(bench, results=failed[:1], other_results=rest)
    _, many = cost(bench, results=tuple(failed[1:]))
    assert len(many) <= len(one)


def test_call_hands_out_sixteen_copies_for_the_price_of_one(bench):
    make(bench, 17)
    host = call(bench).host_id
    reply, one = cost(bench, host_id=host, cpu_req_instances=1.0)
    held = tuple(OtherResult(result.name) for result in reply.results)
    reply, many = cost(bench, host_id=host, cpu_req_instances=16.0, other_results=held)
    assert len(reply.results) == 16
    assert len(many) <= len(one)


# --------------------------------------------------------- reports beyond the cap


def state_of(bench, copy):
    table = schema.results
    with bench.engine._database.read() as connection:
        return connection.scalar(select(table.c.state).where(table.c.name == copy))


def test_reports_beyond_the_cap_are_not_acknowledged_and_come_again(bench, monkeypatch):
    monkeypatch.setattr(
        "stoilo.server.engines.embedded.scheduling.scheduler.REPORTS_TAKEN", 2
    )
    make(bench, 5)
    copies = [one.name for one in call(bench, cpu_req_instances=5.0).results]
    finished = tuple(
        ReportedResult(one, ResultState.COMPUTE_ERROR, 1) for one in copies
    )
    reply = call(bench, results=finished)
    assert reply.acks == tuple(copies[:2])
    assert reply.results == ()  # those that wait are not lost
    assert state_of(bench, copies[2]) == ResultProgress.IN_PROGRESS
    assert call(bench, results=finished[2:]).acks == tuple(copies[2:4])
    assert call(bench, results=finished[4:]).acks == tuple(copies[4:])


def test_client_with_more_reports_is_called_soon(bench, monkeypatch):
    monkeypatch.setattr(
        "stoilo.server.engines.embedded.scheduling.scheduler.REPORTS_TAKEN", 1
    )
    make(bench, 2)
    copies = call(bench, **{**STOCK, "cpu_req_instances": 2.0}).results
    finished = tuple(
        ReportedResult(one.name, ResultState.COMPUTE_ERROR, 1) for one in copies
    )
    stock = {**STOCK, "cpu_req_instances": 0.0}
    assert call(bench, **stock, results=finished).next_rpc_delay < 1
    assert call(bench, **stock, results=finished[1:]).next_rpc_delay > 1


def test_cap_is_below_what_a_request_may_name():
    assert 1 <= reports.REPORTS_TAKEN <= 1000


# ------------------------------------------------------------- what is not written


def stored(bench, column):
    with bench.engine._database.read() as connection:
        return connection.scalar(select(schema.hosts.c[column]))


def test_last_call_of_a_host_is_stored_when_it_is_time(bench, clock):
    host, begin = call(bench).host_id, clock()
    clock.now += SEEN_EVERY_S - 1
    call(bench, host_id=host)
    assert stored(bench, "seen_at") == begin
    clock.now += 1
    call(bench, host_id=host)
    assert stored(bench, "seen_at") == begin + SEEN_EVERY_S


def test_copied_state_is_found_though_the_number_was_not_stored(bench):
    host = call(bench, rpc_seqno=10).host_id
    call(bench, host_id=host, rpc_seqno=20)
    assert stored(bench, "rpc_seqno") == 10
    assert call(bench, host_id=host, rpc_seqno=15).host_id not in {0, host}


def test_number_that_grows_is_no_copy(bench):
    host = call(bench, rpc_seqno=10).host_id
    for number in (20, 21, 21):
        assert call(bench, host_id=host, rpc_seqno=number).host_id == 0


def test_presence_forgets_those_who_have_not_called_for_longest():
    presence = HostActivity(most=2)
    for host in (1, 2, 1, 3):
        presence.note_call(host, host)
    assert [presence.last_call(host) for host in (1, 2, 3)] == [1, 0, 3]


def test_work_on_a_connection_that_reads_ends_before_it_writes(bench):
    database = bench.engine._database
    with database.read() as connection, pytest.raises(NeedsWritingError):
        must_write(connection)
    with database.write() as connection:
        must_write(connection)
        assert is_writing(connection)


def test_changed_program_is_seen_at_the_next_call(bench):
    make(bench, 1)
    before = call(bench, **STOCK)
    signer = ProgramSigner()
    bench.engine.set_programs([signer.program(verifier=b"other")], signer.key)
    after = call(bench, **STOCK)
    assert after.results == before.results
    assert after.app_versions != before.app_versions
    assert after.code_sign_key != before.code_sign_key


# ------------------------------------------------------------- moving workunits


def test_engine_moves_many_workunits_in_few_transactions(bench):
    make(bench, 12, redundancy=SINGLE)
    for copy in [one.name for one in call(bench, cpu_req_instances=12.0).results]:
        bench.finish(1, copy, b"same")
    commits = []

    def note(connection):
        commits.append(connection)

    event.listen(bench.engine._database._writer, "commit", note)
    bench.settle()
    assert len(bench.outcomes.outcomes) == 12
    assert len(commits) <= 8


class Picky(OutcomeRecorder):
    """Takes one workunit's outcome only when it is offered again."""

    def assimilate(self, outcome):
        if outcome.workunit == "w_1" and not self.calls["w_1"]:
            self.calls["w_1"] += 1
            raise RuntimeError("not now")
        super().assimilate(outcome)


def test_outcome_that_is_not_taken_comes_again_and_others_do_not(bench, clock):
    make(bench, 3, redundancy=SINGLE)
    bench.outcomes = Picky()
    for copy in [one.name for one in call(bench, cpu_req_instances=3.0).results]:
        bench.finish(1, copy, b"same")
    bench.settle()
    assert set(bench.outcomes.outcomes) == {"w_0", "w_2"}
    clock.now += 600
    bench.settle()
    assert bench.outcomes.calls == {"w_0": 1, "w_1": 2, "w_2": 1}
