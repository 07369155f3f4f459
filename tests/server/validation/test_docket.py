from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from stoilo.core.errors import UserCodeError
from stoilo.core.fairqueue import FairQueue, Shares
from stoilo.server.engines.interface import NotDecidedYet
from stoilo.server.validation import docket as module
from stoilo.server.validation.docket import Docket, Matter, machine_shares
from stoilo.server.validation.results import Opinion
from stoilo.server.validation.validators import (
    Call,
    JudgeTrouble,
    ValidatorProgram,
    Watch,
)
from tests.support.server import ManualClock

PROGRAM = ValidatorProgram(b"# a validator\n", "check", "check", "pure")
SHARES = Shares(slots=2, busy_above=10.0, half_life_s=600.0)
HOSTILE, HONEST = 1, 2
PATIENCE_S = 30.0


@dataclass
class Jails:
    """Validators by value: ``slow`` runs until it is let go or ended; others say yes."""

    clock: ManualClock
    costs: dict[bytes, int] = field(default_factory=dict)
    errors: dict[bytes, Exception] = field(default_factory=dict)
    let_go: threading.Event = field(default_factory=threading.Event)
    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    calls: list[bytes] = field(default_factory=list)

    def decide(self, call: Call, watch: Watch) -> bool:
        (value,) = call.values
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            self.let_go.set()

        watch(stop)
        self.calls.append(value)
        self.began.release()
        if value.startswith(b"slow"):
            assert self.let_go.wait(PATIENCE_S)
            if stopped.is_set():
                raise UserCodeError("STO-R059", "ended")
        self.clock.now += self.costs.get(value, 0)
        if value in self.errors:
            raise self.errors[value]
        return True


@dataclass
class Court:
    """A docket, and what it tells."""

    jails: Jails
    docket: Docket
    told: list[str]
    changed: threading.Condition

    def hear(self, matter: Matter, *values: bytes) -> list[bool]:
        """Ask until everything is known."""
        while True:
            try:
                return self.ask(matter, *values)
            except NotDecidedYet:
                self.wait_told(matter.workunit)

    def ask(self, matter: Matter, *values: bytes) -> list[bool]:
        sitting = Opinion(self.docket, matter, PROGRAM)
        answers = [sitting.accepts(value) for value in values]
        sitting.rise()
        return answers

    def put(self, matter: Matter, *values: bytes) -> None:
        with pytest.raises(NotDecidedYet, match="STO-R065"):
            self.ask(matter, *values)

    def wait_told(self, workunit: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: workunit in self.told, PATIENCE_S)
            self.told.remove(workunit)


@pytest.fixture
def make() -> Iterator[Callable[..., Court]]:
    made: list[Court] = []

    def build(shares: Shares = SHARES) -> Court:
        clock, told, changed = ManualClock(0), list[str](), threading.Condition()

        def tell(workunit: str) -> None:
            with changed:
                told.append(workunit)
                changed.notify_all()

        jails = Jails(clock)
        docket = Docket(jails, tell, shares, clock)  # type: ignore[arg-type]  # stands in
        made.append(Court(jails, docket, told, changed))
        return made[-1]

    yield build
    for court in made:
        court.jails.let_go.set()
        court.docket.close()


@pytest.fixture
def court(make: Callable[..., Court]) -> Court:
    return make()


def test_slow_validators_of_one_account_hold_up_no_other(court: Court) -> None:
    court.put(Matter(HOSTILE, "w_1", 40), *(b"slow%d" % one for one in range(40)))
    assert court.jails.began.acquire(timeout=PATIENCE_S)
    assert court.hear(Matter(HONEST, "w_2"), b"quick") == [True]
    assert court.docket.waiting == 39


class FirstCome(FairQueue[Any]):
    """The queue that there was before: first come, first served."""

    def _choose(self, now: float) -> int | None:
        del now
        waiting = (one for one, theirs in self._accounts.items() if theirs.groups)
        return next(waiting, None) if self._running < SHARES.slots else None


@pytest.mark.parametrize("fair", [True, False])
def test_first_come_first_served_would_hold_up_everybody(
    make: Callable[..., Court], monkeypatch: pytest.MonkeyPatch, *, fair: bool
) -> None:
    monkeypatch.setattr(module, "FairQueue", FairQueue if fair else FirstCome)
    court = make()
    court.put(Matter(HOSTILE, "w_1", 40), *(b"slow%d" % one for one in range(40)))
    for _ in range(1 if fair else SHARES.slots):
        assert court.jails.began.acquire(timeout=PATIENCE_S)
    court.put(Matter(HONEST, "w_2"), b"quick")
    if fair:
        court.wait_told("w_2")
    assert (b"quick" in court.jails.calls) is fair


def test_answer_is_asked_for_once(court: Court) -> None:
    matter = Matter(HONEST, "w_1", 3)
    for _ in range(3):
        assert court.hear(matter, b"a", b"b", b"a") == [True] * 3
    assert sorted(court.jails.calls) == [b"a", b"b"]


@pytest.mark.parametrize("dropped", [True, False])
def test_cancel_ends_what_runs_and_what_waits(court: Court, *, dropped: bool) -> None:
    court.put(Matter(HOSTILE, "w_1", 5), *(b"slow%d" % one for one in range(5)))
    assert court.jails.began.acquire(timeout=PATIENCE_S)
    if dropped:
        court.docket.drop("w_1")
    else:
        court.jails.let_go.set()
        court.wait_told("w_1")
    assert court.hear(Matter(HOSTILE, "w_2"), b"next") == [True]
    went_on = [value for value in court.jails.calls if value.startswith(b"slow")]
    assert len(went_on) == (1 if dropped else 5)


def test_cancelled_workunit_does_not_come_again(court: Court) -> None:
    court.docket.drop("w_1")
    court.put(Matter(HOSTILE, "w_1"), b"late")
    assert court.hear(Matter(HOSTILE, "w_2"), b"next") == [True]
    assert court.jails.calls == [b"next"]


@pytest.mark.parametrize(("cost_s", "ends"), [(20, True), (1, False)])
def test_workunit_over_its_budget_ends(
    court: Court, cost_s: int, *, ends: bool
) -> None:
    values = [b"%d" % one for one in range(40)]
    court.jails.costs = dict.fromkeys(values, cost_s)
    matter = Matter(HOSTILE, "w_1", 40)
    court.put(matter, *values)
    court.wait_told("w_1")
    if ends:
        with pytest.raises(UserCodeError, match="STO-R059"):
            court.ask(matter, *values)
        assert sum(court.jails.costs[one] for one in court.jails.calls) == 220
    else:
        assert court.ask(matter, *values) == [True] * 40


def test_failed_validator_leaves_the_rest_uncalled(court: Court) -> None:
    court.jails.errors[b"0"] = UserCodeError("STO-R053", "it raised")
    matter = Matter(HOSTILE, "w_1", 40)
    with pytest.raises(UserCodeError, match="STO-R053"):
        court.hear(matter, *(b"%d" % one for one in range(40)))
    assert len(court.jails.calls) <= SHARES.slots


@pytest.mark.parametrize("error", [JudgeTrouble("STO-R042", "dead"), OSError("full")])
def test_jail_s_trouble_is_said_once_and_tried_again(
    court: Court, error: Exception
) -> None:
    court.jails.errors[b"a"] = error
    with pytest.raises(JudgeTrouble, match="STO-R042"):
        court.hear(Matter(HONEST, "w_1"), b"a")
    del court.jails.errors[b"a"]
    assert court.hear(Matter(HONEST, "w_1"), b"a") == [True]


@pytest.mark.parametrize("bound", ["WAITING_BYTES", "ALL_BYTES"])
def test_of_what_is_too_much_only_the_name_is_kept(
    court: Court, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, 4 * module.CALL_BYTES)
    court.put(Matter(HOSTILE, "w_0", 9), *(b"slow%d" % one for one in range(9)))
    assert court.jails.began.acquire(timeout=PATIENCE_S)
    court.put(Matter(HOSTILE, "w_1"), b"more")
    assert court.docket.waiting == 8
    assert court.hear(Matter(HONEST, "w_2"), b"quick") == [True]
    court.jails.let_go.set()
    court.wait_told("w_1")  # there is room now
    assert court.hear(Matter(HOSTILE, "w_1"), b"more") == [True]


def test_what_was_put_off_comes_when_the_rest_is_cancelled(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 0)
    court.put(Matter(HOSTILE, "w_0", 2), b"slow", b"slow2")  # the first always may
    assert court.jails.began.acquire(timeout=PATIENCE_S)
    court.put(Matter(HOSTILE, "w_1"), b"more")
    court.docket.drop("w_0")
    assert court.hear(Matter(HOSTILE, "w_1"), b"more") == [True]


def test_oldest_answers_of_an_account_are_forgotten(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWERS", 2)
    for number in range(4):
        court.hear(Matter(HOSTILE, f"w_{number}"), b"%d" % number)
    court.hear(Matter(HONEST, "other"), b"mine")
    for number in range(4):
        court.hear(Matter(HOSTILE, f"w_{number}"), b"%d" % number)
    assert len(court.jails.calls) > 5
    court.hear(Matter(HONEST, "other"), b"mine")
    assert court.jails.calls.count(b"mine") == 1


def test_forgotten_workunit_is_asked_anew(court: Court) -> None:
    matter = Matter(HONEST, "w_1")
    court.hear(matter, b"a")
    court.docket.forget("w_1")
    court.hear(matter, b"a")
    assert court.jails.calls == [b"a", b"a"]


def test_soon_answered_workunit_can_be_waited_for(court: Court) -> None:
    court.put(Matter(HONEST, "w_1"), b"slow")
    assert not court.docket.wait("w_1", 0.01)
    court.jails.let_go.set()
    assert court.docket.wait("w_1", PATIENCE_S)


def test_who_waits_for_an_answer_is_not_told_of_it_besides(court: Court) -> None:
    court.put(Matter(HONEST, "w_1"), b"slow")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(court.docket.wait, "w_1", PATIENCE_S)
        while not court.docket._cases["w_1"].waited:
            time.sleep(0.001)
        court.jails.let_go.set()
        assert waits.result()
    court.docket.close()  # whoever was to be told has been
    assert court.told == []


def test_nobody_waits_for_a_busy_account(court: Court) -> None:
    court.jails.costs[b"dear"] = 15
    court.hear(Matter(HOSTILE, "w_1"), b"dear")
    court.put(Matter(HOSTILE, "w_2"), b"slow")
    assert not court.docket.wait("w_2", PATIENCE_S)


def test_closed_docket_ends_what_runs(court: Court) -> None:
    court.put(Matter(HOSTILE, "w_1", 3), b"slow0", b"slow1", b"slow2")
    assert court.jails.began.acquire(timeout=PATIENCE_S)
    court.docket.close()
    court.put(Matter(HOSTILE, "w_2"), b"late")
    assert court.jails.calls == [b"slow0"]


@pytest.mark.parametrize(("processors", "jails"), [(1, 2), (2, 2), (4, 4), (64, 9)])
def test_machine_has_a_jail_a_processor_and_two_at_least(
    processors: int, jails: int
) -> None:
    assert machine_shares(processors).slots == jails
