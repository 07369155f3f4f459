"""BOINC's daemons wait for validators a little, never for those of a busy account."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from stock_bench import StockBench

from stoilo.core.types import Redundancy
from stoilo.server.engines.interface import OutcomeKind, ResultCheck, ResultVerdict
from stoilo.server.engines.stock.project import tables
from tests.support.engine import BodyValidation, make_spec

SINGLE = Redundancy(
    min_quorum=1, target_results=1, max_error=1, max_total=3, max_success=3
)

pytestmark = pytest.mark.slow  # each of BOINC's calls is a process


class LateValidation(BodyValidation):
    """Says "pending" the first times that it is asked."""

    def __init__(self, pending):
        self.pending = pending

    def check(self, result):
        if self.pending:
            self.pending -= 1
            return ResultCheck(ResultVerdict.PENDING, "STO-R065")
        return super().check(result)


class PatientValidation(LateValidation):
    """One that can be waited for, in vain or not."""

    def __init__(self, pending, *, in_time):
        super().__init__(pending)
        self.in_time = in_time
        self.waited = []

    def wait(self, workunit, seconds):
        self.waited.append((workunit, seconds))
        return self.in_time


def run(directory, clock, validation):
    """Let one result come in; returns the bench at rest."""
    bench = StockBench(directory / "project", clock)
    bench.validation = validation
    bench.restart()
    bench.engine.create_workunits([make_spec("w_1", redundancy=SINGLE)])
    (copy,) = bench.fetch(1)
    bench.finish(1, copy, b"same")
    bench.settle()
    return bench


def asks(bench):
    with bench.engine._database.read() as connection:
        query = select(tables.workunits.c.id).where(tables.workunits.c.ask_at > 0)
        return connection.execute(query).all()


def test_answer_that_comes_in_time_is_given_at_once(tmp_path, clock):
    validation = PatientValidation(1, in_time=True)
    bench = run(tmp_path, clock, validation)
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL
    assert asks(bench) == []
    assert validation.waited[0][0] == "w_1"
    bench.close()


def test_answer_that_came_while_the_question_was_put_off_is_not_missed(tmp_path, clock):
    bench = run(tmp_path, clock, LateValidation(1))
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL
    bench.close()


def test_answer_that_does_not_come_is_asked_for_when_told_of(tmp_path, clock):
    bench = run(tmp_path, clock, PatientValidation(4, in_time=False))
    assert bench.outcomes.kind("w_1") is None
    assert len(asks(bench)) == 1
    for _ in range(2):
        bench.engine.ask_again("w_1")
        bench.settle()
    assert bench.outcomes.kind("w_1") is OutcomeKind.CANONICAL
    bench.close()
