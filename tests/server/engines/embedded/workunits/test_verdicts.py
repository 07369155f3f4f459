from __future__ import annotations

import pytest
from engine_bench import EmbeddedBench
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from stoilo.core.boinc.messages import ReportedResult, ResultState
from stoilo.core.types import Redundancy
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.workunits.verdicts import (
    MOST_PER_RESULT,
    credit_of,
    grant,
)
from tests.support.engine import make_spec

NOW = 1_800_000_000
PAIR = Redundancy(min_quorum=2, target_results=2)


@pytest.fixture
def bench(tmp_path, clock, engine_url):
    made = EmbeddedBench(tmp_path / "engine", clock, database_url=engine_url)
    yield made
    made.engine.close()


def standing(bench, user):
    return bench.request(user, level=None, dont_send_work=True).user


def granted(bench):
    with bench.engine._database.read() as connection:
        return connection.scalar(select(func.sum(schema.results.c.granted))) or 0.0


# ------------------------------------------------------------------ formulas


def test_a_day_of_one_gigaflops_is_200_cobblestones():
    assert credit_of(86_400e9) == pytest.approx(200.0)


@given(st.floats())
def test_credit_is_bounded_whatever_the_estimate(fpops):
    assert 0.0 <= credit_of(fpops) <= MOST_PER_RESULT


# ------------------------------------------------------------------ grants


def finish_pair(bench, *bodies):
    bench.engine.create_workunits([make_spec("w_1", redundancy=PAIR)])
    copies = [bench.fetch(user)[0] for user in range(1, len(bodies) + 1)]
    for user, (copy, body) in enumerate(zip(copies, bodies, strict=True), 1):
        bench.finish(user, copy, body)
    bench.settle()


def test_every_valid_copy_is_worth_the_same(bench):
    finish_pair(bench, b"x", b"x")
    worth = credit_of(1e9)
    for user in (1, 2):
        info = standing(bench, user)
        assert info.total_credit == info.host_total_credit == pytest.approx(worth)


def test_claimed_time_changes_nothing(bench):
    alone = Redundancy(min_quorum=1, target_results=1)
    bench.engine.create_workunits([make_spec("w_1", redundancy=alone)])
    (copy,) = bench.fetch(1)
    bench.upload(copy, b"x")
    claim = ReportedResult(copy, ResultState.UPLOADED, 0, 1e9, 1e9)
    bench.request(1, results=(claim,))
    bench.settle()
    assert granted(bench) == pytest.approx(credit_of(1e9))


@pytest.mark.parametrize("body", [b"bad", b"optin", b"fatal"])
def test_what_is_not_valid_is_not_paid(bench, body):
    bench.engine.create_workunits([make_spec("w_1")])
    bench.finish(1, bench.fetch(1)[0], body)
    bench.settle()
    assert granted(bench) == 0.0


def test_disagreeing_copies_are_not_paid_before_a_quorum(bench):
    finish_pair(bench, b"x", b"y")
    assert granted(bench) == 0.0
    bench.finish(3, bench.fetch(3)[0], b"x")
    bench.settle()
    assert granted(bench) == pytest.approx(2 * credit_of(1e9))
    assert standing(bench, 2).total_credit == 0.0


@given(calls=st.integers(1, 4))
def test_grant_again_pays_nothing(tmp_path_factory, calls):
    clock = lambda: NOW  # noqa: E731 - one line
    bench = EmbeddedBench(tmp_path_factory.mktemp("credit") / "engine", clock)
    finish_pair(bench, b"x", b"x")
    before = granted(bench)
    with bench.engine._database.write() as connection:
        rows = connection.scalars(select(schema.workunits.c.id)).all()
        paid = [grant(connection, rows[0]) for _ in range(calls)]
    assert paid == [()] * calls
    assert granted(bench) == before
    bench.engine.close()


def pay_again_and_crash(bench):
    with bench.engine._database.write() as connection:
        connection.execute(schema.results.update().values(granted=None))
        row = connection.scalar(select(schema.workunits.c.id))
        assert len(grant(connection, row)) == 2
        raise ZeroDivisionError


def test_crash_before_the_commit_leaves_neither_validity_nor_credit(bench):
    finish_pair(bench, b"x", b"x")
    with pytest.raises(ZeroDivisionError):
        pay_again_and_crash(bench)
    bench.restart()
    bench.settle()
    assert granted(bench) == pytest.approx(2 * credit_of(1e9))


def test_reply_shows_the_credit(bench):
    finish_pair(bench, b"x", b"x")
    reply = bench.request(1)
    assert reply.user.total_credit == pytest.approx(credit_of(1e9))
    assert reply.user.name == f"volunteer {reply.user.id}"
