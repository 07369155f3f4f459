"""Random events on the engine and on the reference model: both say the same."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import EmbeddedBench
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from reference_model import SPOT_CHECK_RATE, Host, Project
from sqlalchemy import select

from stoilo.core.boinc.messages import (
    HostInfo,
    OtherResult,
    ReportedResult,
    ResultState,
)
from stoilo.core.errors import DeniedError
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.accounts import quotas
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import CheckVerdict, load_view
from stoilo.server.engines.embedded.engine import EngineOptions
from stoilo.server.engines.embedded.scheduling import dispatch, reports
from stoilo.server.engines.embedded.workunits import (
    steps,
    transitioner,
    verdicts,
)
from stoilo.server.engines.interface import ResultOutcome, ResultProgress
from stoilo.server.engines.workunits import Homogeneity, Replication
from tests.support.engine import make_spec
from tests.support.server import ManualClock

WORKUNITS = 3
LIFE_S = 2000
KINDS = {"x86": "GenuineIntel", "arm": "ARM", "": ""}
HOSTS = [
    Host(user, key, kind)
    for user, key, kind in (
        *((user, f"{user:032x}", "x86") for user in range(1, 6)),
        (1, "a" * 32, "x86"),  # a second machine of user 1
        (2, f"{3:032x}", "x86"),  # the machine of user 3 under another account
        (6, "b" * 32, "arm"),
        (7, "c" * 32, "arm"),
        (8, "d" * 32, ""),
    )
]
NEWCOMERS = {7, 8}
NEW_HOSTS = [host for host in HOSTS if host.user in NEWCOMERS]
LUCK = st.sampled_from([0.05, 0.3, 0.9])  # not trusted, checked again, neither
OTHER_WORDS = {"no_reply": "silent", "client_error": "error", "not_needed": "dropped"}
OTHER_WORDS |= {"invalid": "bad"}
SUCCESS_WORDS = {
    "init": "fresh",
    "checked": "answer",
    "inconclusive": "answer",
    "valid": "good",
    "invalid": "wrong",
    "too_late": "late",
}


@st.composite
def redundancies(draw):
    quorum = draw(st.sampled_from([1, 2, 2, 3]))
    target = draw(st.integers(quorum, 4))
    total = draw(st.integers(target, 7))
    return Redundancy(
        min_quorum=quorum,
        target_results=target,
        max_total=total,
        max_success=draw(st.integers(quorum, total)),
        max_error=draw(st.integers(1, total)),
        delay_bound_s=draw(st.integers(1, 3)) * 100,
    )


def word(copy):
    if copy.state is not ResultProgress.OVER:
        return "new" if copy.state is ResultProgress.UNSENT else "out"
    if copy.outcome.value == "success":
        return SUCCESS_WORDS[copy.validity.value]
    return OTHER_WORDS.get(copy.outcome.value, copy.outcome.value)


CHECKED = Redundancy(
    min_quorum=2,
    target_results=2,
    max_total=6,
    max_success=6,
    max_error=4,
    delay_bound_s=300,
)
THREE_COPIES = replace(CHECKED, target_results=3)


class Both(RuleBasedStateMachine):
    """The engine and the model side by side."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        engine = Path(self.folder.name) / "engine"
        self.clock = ManualClock(1_800_000_000)
        self.model = None
        options = EngineOptions(
            spot_check_rate=SPOT_CHECK_RATE, draw=lambda: self.model.luck
        )
        self.bench = EmbeddedBench(engine, self.clock, options)

    @initialize(
        ours=st.sets(st.sampled_from([5, 6])),
        records=st.lists(st.sampled_from([0, 10]), min_size=4, max_size=4),
        limits=redundancies(),
        adaptive=st.booleans(),
    )
    def begin(self, ours, records, limits, adaptive):
        given = dict(zip(HOSTS, records, strict=False))
        first_with = {host.key: host.user for host in given}
        self.model = Project(
            ours=ours, records=given, newcomers=NEWCOMERS, first_with=first_with
        )
        for host, record in given.items():
            self.bench.set_record(host.user, record)
        for user in ours:
            self.bench.trust(user)
        for user in NEWCOMERS:
            self.bench.make_unverified(user)
        self.make(limits, homogeneous=False, adaptive=adaptive)

    def engine_name(self, place, number=None):
        return f"w_{place}" if number is None else f"w_{place}_{number}"

    def rpc(self, host, **fields):
        info = HostInfo(os_name="Linux", vendor=KINDS[host.kind])
        held = tuple(
            OtherResult(self.engine_name(place, copy.number))
            for place, copy in self.copies()
            if copy.host == host and copy.at == "out"
        )
        return self.bench.request(
            host.user, cpid=host.key, host=info, other_results=held, **fields
        )

    def copies(self):
        units = enumerate(self.model.workunits)
        return [(place, copy) for place, unit in units for copy in unit.copies]

    # -------------------------------------------------------------- events

    @precondition(lambda self: len(self.model.workunits) < WORKUNITS)
    @rule(limits=redundancies(), homogeneous=st.booleans(), adaptive=st.booleans())
    def create(self, limits, homogeneous, adaptive):
        self.make(limits, homogeneous=homogeneous, adaptive=adaptive)

    def make(self, limits, *, homogeneous, adaptive):
        place = len(self.model.workunits)
        self.model.create(limits, LIFE_S, homogeneous=homogeneous, adaptive=adaptive)
        spread = Replication(
            Homogeneity.COARSE if homogeneous else Homogeneity.NONE, adaptive
        )
        spec = make_spec(
            self.engine_name(place),
            redundancy=limits,
            not_after=self.clock() + LIFE_S,
            replication=spread,
        )
        self.bench.engine.create_workunits([spec])

    @rule(host=st.sampled_from(HOSTS), luck=LUCK)
    def fetch(self, host, luck):
        self.ask(host, luck)

    def ask(self, host, luck):
        self.model.luck = luck
        reply = self.rpc(host, cpu_req_instances=8.0)
        got = sorted(result.name for result in reply.results)
        expected = self.model.fetch(host)
        assert got == sorted(self.engine_name(*one) for one in expected)
        told = self.model.is_banned(host) or self.model.is_paused(host)
        assert bool(reply.messages) is told
        return expected

    @rule(
        hosts=st.lists(st.sampled_from(HOSTS), min_size=2, max_size=6, unique=True),
        luck=LUCK,
        what=st.sampled_from(["x", "x", "x", "x~", "y", "y", "bad", "error"]),
    )
    def work(self, hosts, luck, what):
        self.work_for(hosts, luck, what)

    def work_for(self, hosts, luck, what):
        for host in hosts:
            for place, number in self.ask(host, luck):
                self.answer(place, self.model.workunits[place].copies[number], what)
        self.settle()

    @precondition(lambda self: self.is_checked("pending"))
    @rule(what=st.sampled_from(["x", "y", "y~"]))
    def check_again(self, what):
        ours = [host for host in HOSTS if host.user in self.model.ours]
        self.work_for(ours, 0.9, what)

    @precondition(lambda self: self.is_checked("doubted"))
    @rule(what=st.sampled_from(["x", "y", "y", "y~", "z", "error"]))
    def give_second_opinion(self, what):
        ours = [host for host in HOSTS if host.user in self.model.ours]
        self.work_for([*ours, *HOSTS[:5]], 0.9, what)

    @precondition(lambda self: len(self.model.workunits) < 2 * WORKUNITS)
    @precondition(lambda self: self.model.ours)
    @rule(
        lie=st.sampled_from(["y", "y~"]),
        first=st.sampled_from(["x", "x", "x~"]),
        second=st.sampled_from(["x", "x", "x~", "y", "z"]),
    )
    def catch_a_lie(self, lie, first, second):
        """Two hosts give one answer, ours another; somebody else has the last word."""
        self.make(CHECKED, homogeneous=False, adaptive=False)
        ours = [host for host in HOSTS if host.user in self.model.ours]
        self.work_for([HOSTS[0], HOSTS[2]], 0.05, lie)
        self.work_for(ours[:1], 0.9, first)
        self.work_for([*ours[1:], HOSTS[3]], 0.9, second)

    @rule(what=st.sampled_from(["aborted", "optin"]), others=st.booleans())
    def turn_away(self, what, others):
        """One after the other takes what there is and does not do it, who is new last."""
        known = [host for host in HOSTS if host.user not in NEWCOMERS]
        for host in [*(known if others else ()), *NEW_HOSTS]:
            self.work_for([host], 0.9, what)

    @precondition(lambda self: len(self.model.workunits) < WORKUNITS)
    @rule(what=st.sampled_from(["aborted", "optin"]))
    def turn_all_away(self, what):
        """Whoever is new does nothing of three tasks in a row, and asks once more."""
        for _ in range(3):
            self.make(CHECKED, homogeneous=False, adaptive=False)
        for _ in range(2):
            self.work_for(NEW_HOSTS, 0.9, what)

    @precondition(lambda self: len(self.model.workunits) < WORKUNITS)
    @rule(what=st.sampled_from(["x", "y", "bad", "error"]))
    def come_late(self, what):
        """Two hosts of three agree, and it ends; the third reports afterwards."""
        self.make(THREE_COPIES, homogeneous=False, adaptive=False)
        place, hosts = len(self.model.workunits) - 1, [HOSTS[0], HOSTS[2], HOSTS[3]]
        got = [one for host in hosts for one in self.ask(host, 0.9) if one[0] == place]
        for number, answer in zip(
            [one[1] for one in got], ["x", "x", what], strict=False
        ):
            self.answer(place, self.model.workunits[place].copies[number], answer)
            self.settle()

    @rule(rounds=st.integers(1, 3))
    def fall_silent(self, rounds):
        """Whoever takes something is never heard of again."""
        for _ in range(rounds):
            for host in HOSTS:
                self.ask(host, 0.9)
            self.pass_time(301)  # the longest deadline
            self.settle()

    def is_checked(self, word):
        return any(unit.check == word for unit in self.model.workunits)

    @precondition(lambda self: any(copy.host for _, copy in self.copies()))
    @rule(
        pick=st.integers(0, 50),
        what=st.sampled_from(
            [*"xxxxxyy", "x~", "bad", "optin", "error", "aborted", "fatal"]
        ),
    )
    def report(self, pick, what):
        sent = [one for one in self.copies() if one[1].host]
        self.answer(*sent[pick % len(sent)], what)

    def answer(self, place, copy, what):
        """Report a copy. One that may get its host banned finds and leaves all settled.

        Which of a ban and the end of another workunit comes first in one turn is nobody's
        promise.
        """
        if copy.recheck:
            self.settle()
        self.give(place, copy, what)
        if copy.recheck:
            self.settle()

    def give(self, place, copy, what):
        unit, name = self.model.workunits[place], self.engine_name(place, copy.number)
        failed = what in {"error", "aborted"}
        if not failed:
            self.upload(name, what, expected=self.model.receives(unit, copy))
        state = ResultState.COMPUTE_ERROR if failed else ResultState.UPLOADED
        exit_status = {"error": 1, "aborted": 203}.get(what, 0)
        done = ReportedResult(name, state, exit_status)
        assert self.rpc(copy.host, results=(done,)).acks == (name,)
        self.model.report(unit, copy, what)

    def upload(self, name, body, *, expected):
        try:
            self.bench.upload(name, body.encode())
        except DeniedError:
            assert not expected
        else:
            assert expected

    @rule(seconds=st.sampled_from([40, 101, 250]))
    def pass_time(self, seconds):
        self.clock.now += seconds
        self.model.now = self.clock.now

    @precondition(lambda self: self.model.workunits)
    @rule(pick=st.integers(0, 25))
    def cancel(self, pick):
        if pick < len(self.model.workunits):
            self.bench.engine.cancel(self.engine_name(pick))
            self.model.cancel(self.model.workunits[pick])

    @rule()
    def settle(self):
        self.bench.settle()
        self.model.settle()

    # -------------------------------------------------------------- what must hold

    @invariant()
    def both_say_the_same(self):
        if self.model is None:
            return
        for place, unit in enumerate(self.model.workunits):
            view = self.view(place)
            ended = view.outcome.value if view.outcome else ""
            assert [word(copy) for copy in view.results] == [c.at for c in unit.copies]
            assert (ended, view.lingering) == (unit.end, unit.kept)
            assert (bool(view.host_class), view.alone) == (bool(unit.kind), unit.alone)
            self.check_limits(view)
        assert self.banned() == {
            (f"u{host.user}@example.org", host.key) for host in self.model.banned
        }

    def banned(self):
        hosts, users = schema.hosts, schema.users
        query = (
            select(users.c.email, hosts.c.cpid)
            .join(hosts, hosts.c.user_id == users.c.id)
            .where(hosts.c.ban.is_not(None))
        )
        with self.bench.engine._database.read() as connection:
            return {(row.email, row.cpid) for row in connection.execute(query)}

    def view(self, place):
        table, name = schema.workunits, self.engine_name(place)
        with self.bench.engine._database.read() as connection:
            row = connection.scalar(select(table.c.id).where(table.c.name == name))
            return load_view(connection, row)

    def check_limits(self, view):
        sent = [copy for copy in view.results if copy.user_id]
        assert len({copy.user_id for copy in sent}) == len(sent)
        assert len({copy.host_key for copy in sent}) == len(sent)
        assert all(copy.deadline <= view.not_after for copy in sent)
        uncounted = {"refused", "aborted", "dropped"}
        counted = [
            c for c in view.results if word(c) not in uncounted and not c.recheck
        ]
        assert len(counted) <= view.redundancy.max_total

    def teardown(self):
        try:
            if self.model is not None:
                self.end_everything()
        finally:
            self.bench.engine.close()
            self.folder.cleanup()

    def end_everything(self):
        """Hosts fall silent for ever: each workunit has one outcome, and no file."""
        self.pass_time(2 * LIFE_S)
        self.settle()
        self.both_say_the_same()
        for place, unit in enumerate(self.model.workunits):
            name = self.engine_name(place)
            assert unit.end
            assert not unit.kept
            assert self.bench.outcomes.calls[name] == 1
            assert self.bench.outcomes.kind(name).value == unit.end
        assert list((self.bench.directory / "uploads").iterdir()) == []
        verdicts = [
            check.verdict.value for check in self.bench.engine.roster.spot_checks()
        ]
        assert sorted(verdicts) == sorted(
            u.check for u in self.model.workunits if u.check
        )


def play(examples, steps, **changes):
    chosen = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, **changes
    )
    run_state_machine_as_test(Both, settings=chosen)


def test_engine_follows_the_reference_model():
    play(12, 25)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_engine_follows_the_reference_model_for_long():
    play(40, 50)


def condemn_at_once(connection, copy):
    table = schema.results
    row = connection.execute(select(table).where(table.c.name == copy)).one()
    steps.end_check(connection, row.workunit_id, CheckVerdict.DIFFERENT, 0)


BROKEN_RULES = {
    "silence is an error": (
        transitioner,
        "ERROR_OUTCOMES",
        transitioner.ERROR_OUTCOMES | {ResultOutcome.NO_REPLY},
    ),
    "every host is trusted": (dispatch, "is_trusted", lambda *_: True),
    "a quorum is never raised": (dispatch, "raise_quorum", lambda *_: None),
    "newcomers are trusted": (quotas, "is_newcomer", lambda *_: False),
    "aborts use up the total": (
        transitioner,
        "TURNED_AWAY",
        frozenset({ResultOutcome.REFUSED}),
    ),
    "one comparison bans": (verdicts, "doubt_check", condemn_at_once),
    "nobody is excused": (steps, "MOST_EXCUSES", 0),
    "late results are not waited for": (steps, "has_stragglers", lambda _: False),
    "results are not received": (reports, "counts", lambda *_: False),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BROKEN_RULES)
def test_model_notices_a_broken_rule(monkeypatch, name):
    monkeypatch.setattr(*BROKEN_RULES[name])
    first_only = {"phases": [Phase.generate], "report_multiple_bugs": False}
    with pytest.raises(AssertionError):
        play(300, 40, **first_only, database=None, derandomize=True)
