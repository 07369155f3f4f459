"""A project in memory whose every decision is the embedded engine's own rule.

The transitioner says what happens next to a workunit, the quorum rule what is accepted,
the host rules who may work alone, may have a copy, pauses. What this module adds is where
the engine has SQL: it keeps the rows and does what each action says, in the engine's
order, so that the engine itself (`whole`) ends every workunit alike from the same draws.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.simulation.hosts import HostKind
from bench.simulation.project import Assignment, Ending
from bench.simulation.standings import Standings
from bench.simulation.unit import Unit
from stoilo.server.engines.embedded.accounts.host_trust import is_trusted
from stoilo.server.engines.embedded.db.records import (
    Caller,
    Check,
    CheckVerdict,
    Close,
    Compare,
    Create,
    Drop,
    Expire,
    Finish,
    Judge,
    ReleaseClass,
    Result,
    SecondOpinion,
    Validity,
    WorkunitView,
)
from stoilo.server.engines.embedded.scheduling.dispatch import (
    CANDIDATES_PER_RESULT,
    WINDOW_LEAST,
)
from stoilo.server.engines.embedded.workunits.steps import second_verdict
from stoilo.server.engines.embedded.workunits.transitioner import (
    can_receive,
    deadline_of,
    has_stragglers,
    may_issue,
    may_recheck,
    next_actions,
    next_transition,
)
from stoilo.server.engines.embedded.workunits.validator import judge
from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bench.simulation.hosts import Host
    from bench.simulation.project import Report
    from bench.simulation.scenario import Policy
    from stoilo.server.engines.embedded.db.records import Action

__all__ = ["HostRules", "RulesProject"]


@dataclass(frozen=True, slots=True)
class HostRules:
    """The rules about hosts; a test puts another in place of one to see it matter."""

    may_issue: Callable[[WorkunitView, Caller, int], bool] = may_issue
    is_trusted: Callable[[int, float], bool] = is_trusted


class RulesProject:
    """Workunits of one policy in memory; see `project.Project`.

    Args:
        policy: of every workunit.
        life_s: time that a workunit has, s.
        draw: uniform in [0, 1), in the order in which the engine would draw.
        rules: about hosts.
        lots: the same, for which of the copies that wait go first; None: in their order.
    """

    def __init__(
        self,
        policy: Policy,
        life_s: int,
        draw: Callable[[], float],
        rules: HostRules | None = None,
        lots: Callable[[], float] | None = None,
    ) -> None:
        self._lots = lots
        self._policy = policy
        self._life_s = life_s
        self._draw = draw
        self._rules = rules or HostRules()
        self._units: dict[int, Unit] = {}
        self._due: list[tuple[int, int]] = []
        self._unsent: deque[tuple[int, str]] = deque()
        self._rechecks: deque[tuple[int, str]] = deque()
        self._hosts = Standings(policy.season)
        self._held: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self._ended: list[Ending] = []

    @property
    def caught(self) -> Mapping[int, str]:
        """The copy of each host that was the first to be found wrong."""
        return self._hosts.caught

    # ------------------------------------------------------------------ calls

    def create(self, workunits: range, now: int) -> None:
        """Make workunits of these numbers."""
        redundancy = self._policy.redundancy
        alone = self._policy.adaptive and redundancy.min_quorum > 1
        for number in workunits:
            view = WorkunitView(redundancy, now + self._life_s, alone=alone)
            at = max(now, view.not_after - redundancy.delay_bound_s + 1)
            unit = self._units[number] = Unit(number, view, at)
            self._add_copies(unit, 1 if alone else redundancy.target_results)
            heapq.heappush(self._due, (at, number))

    def call(
        self, host: Host, reports: Sequence[Report], room: int, now: int
    ) -> tuple[Assignment, ...]:
        """Take a host's reports and give it up to `room` copies."""
        own = host.kind is HostKind.OWN
        self._hosts.meet(host, own=own)
        for report in reports:
            self._take(host, report, now)
        room = self._hosts.room(host.id, room, now)
        if room <= 0:
            return ()
        caller = Caller(host.id, host.key, trusted_account=own)
        given: list[Assignment] = []
        if own:
            given += self._hand_out(self._rechecks, caller, host, room, now)
        given += self._hand_out(self._unsent, caller, host, room - len(given), now)
        self._hosts.issued(host.id, len(given), now)
        return tuple(given)

    def settle(self, now: int) -> tuple[Ending, ...]:
        """Move what is due until it rests; return the workunits that ended."""
        while due := self._take_due(now):
            asked = [unit for unit in due if self._move(unit, now)]
            while asked:
                for unit in asked:
                    self._answer(unit, now)
                asked = [unit for unit in asked if self._move(unit, now)]
            for unit in due:
                self._deliver(unit, now)
        ended, self._ended = tuple(self._ended), []
        return ended

    def records(self) -> Mapping[int, int]:
        """Return hosts' valid results in a row, for hosts that have had any."""
        return self._hosts.records

    def banned(self) -> frozenset[int]:
        """Return the hosts that are banned."""
        return frozenset(self._hosts.banned)

    # ------------------------------------------------- handing out, taking back

    def _hand_out(
        self,
        queue: deque[tuple[int, str]],
        caller: Caller,
        host: Host,
        room: int,
        now: int,
    ) -> list[Assignment]:
        """Give copies of a queue that may go to a host: the first, or by lot of those."""
        if room <= 0:
            return []
        most = max(room * CANDIDATES_PER_RESULT, WINDOW_LEAST)
        found: list[tuple[int, str]] = []
        looked_at: list[tuple[int, str]] = []
        while queue and len(found) < most:
            number, copy = queue.popleft()
            unit = self._units.get(number)
            if unit is None or not self._is_unsent(unit, copy):
                continue
            looked_at.append((number, copy))
            if self._may_have(unit.view, caller, now):
                found.append((number, copy))
        given: dict[str, int] = {}
        for number, copy in self._drawn(found):
            unit = self._units[number]
            if len(given) < room and self._may_have(unit.view, caller, now):
                self._issue(unit, copy, caller, host, now)
                given[copy] = number
        queue.extendleft(one for one in reversed(looked_at) if one[1] not in given)
        return [Assignment(copy, number) for copy, number in given.items()]

    def _drawn(self, found: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Return workunits and copies in the order in which they go out."""
        lots = self._lots
        if lots is None:
            return found
        drawn = {number: lots() for number, _ in found}
        return sorted(found, key=lambda one: drawn[one[0]])

    def _is_unsent(self, unit: Unit, copy: str) -> bool:
        """Say whether a copy still waits for a host."""
        return unit.view.results[unit.place(copy)].state is ResultProgress.UNSENT

    def _may_have(self, view: WorkunitView, caller: Caller, now: int) -> bool:
        """Say whether the rules let a host have a copy."""
        return self._rules.may_issue(view, caller, now) or may_recheck(
            view, caller, now
        )

    def _issue(
        self, unit: Unit, copy: str, caller: Caller, host: Host, now: int
    ) -> None:
        """Write that a copy is on a host; an untrusted one ends working alone."""
        deadline = deadline_of(unit.view.redundancy, now)
        unit.change(
            copy,
            state=ResultProgress.IN_PROGRESS,
            user_id=caller.user_id,
            host_key=caller.host_key,
            deadline=deadline,
        )
        unit.hosts[unit.place(copy)] = host.id
        self._held[host.id].append((unit.number, copy))
        if unit.transition_at > deadline + 1:
            self._look_at(unit, deadline + 1)
        ended = unit.view.outcome is not None
        if ended or not unit.view.alone or caller.trusted_account:
            return
        if not self._rules.is_trusted(self._hosts.records[host.id], self._draw()):
            unit.view = replace(unit.view, alone=False)
            self._look_at(unit, now)

    def _take(self, host: Host, report: Report, now: int) -> None:
        """Note a finished copy, if it still counts."""
        number = int(report.copy.partition("_")[0])
        unit = self._units.get(number)
        if unit is None:
            return
        at = unit.place(report.copy)
        copy = unit.view.results[at]
        if unit.hosts[at] != host.id or not can_receive(unit.view, copy):
            return
        if not report.answer:
            if copy.state is ResultProgress.OVER:
                return
            self._hosts.failed(host.id, now)
        outcome = ResultOutcome.SUCCESS if report.answer else ResultOutcome.CLIENT_ERROR
        unit.answers[report.copy] = report.answer
        unit.change(report.copy, state=ResultProgress.OVER, outcome=outcome)
        self._look_at(unit, now)

    # ----------------------------------------------------------- moving units

    def _look_at(self, unit: Unit, at: int) -> None:
        """Let a workunit be moved at `at`, s."""
        unit.transition_at = at
        heapq.heappush(self._due, (at, unit.number))

    def _take_due(self, now: int) -> list[Unit]:
        """Return workunits to be moved now, those that run before those that ended."""
        due: dict[int, Unit] = {}
        while self._due and self._due[0][0] <= now:
            at, number = heapq.heappop(self._due)
            unit = self._units.get(number)
            if unit is not None and unit.transition_at == at:
                due[number] = unit
        return sorted(due.values(), key=lambda unit: unit.view.outcome is not None)

    def _move(self, unit: Unit, now: int) -> bool:
        """Do what the rules say until there is only waiting; True for a question."""
        while actions := next_actions(unit.view, now):
            if any(isinstance(one, Check | Judge | Compare) for one in actions):
                return True
            for action in actions:
                self._apply(unit, action, now)
            if any(isinstance(action, Close) for action in actions):
                return False
        self._look_at(unit, next_transition(unit.view, now))
        return False

    def _apply(self, unit: Unit, action: Action, now: int) -> None:
        """Do one action of the rules (the engine's `steps.apply_action`)."""
        match action:
            case Expire(copy):
                unit.change(
                    copy, state=ResultProgress.OVER, outcome=ResultOutcome.NO_REPLY
                )
                self._hosts.failed(unit.hosts[unit.place(copy)], now)
            case Drop(copy):
                unit.change(
                    copy, state=ResultProgress.OVER, outcome=ResultOutcome.NOT_NEEDED
                )
            case Create(count):
                self._add_copies(unit, count)
            case Finish(kind):
                self._end(unit, kind)
            case Close():
                unit.check_pending = False
                unit.view = replace(unit.view, lingering=False)
                self._units.pop(unit.number, None)
            case SecondOpinion():
                self._ask_again(unit)
            case ReleaseClass() | Check() | Judge() | Compare():
                raise AssertionError("no homogeneous workunits, no questions here")
            case _:
                raise AssertionError(action)

    def _ask_again(self, unit: Unit) -> None:
        """Make a second opinion's copy: for one of ours that had none, else for anybody."""
        others = self._hosts.own - set(unit.hosts)
        self._add_copies(unit, 1, recheck=True)
        if not others:
            copy = unit.view.results[-1].name
            unit.change(copy, recheck=CheckVerdict.OPEN)
            self._unsent.append((unit.number, copy))

    def _add_copies(self, unit: Unit, count: int, *, recheck: bool = False) -> None:
        """Add unsent copies, at the end of those that wait."""
        have = len(unit.view.results)
        fresh = tuple(
            Result(
                f"{unit.number}_{have + place}",
                recheck=CheckVerdict.PENDING if recheck else CheckVerdict.NONE,
            )
            for place in range(count)
        )
        unit.view = replace(unit.view, results=unit.view.results + fresh)
        unit.hosts += [0] * count
        queue = self._rechecks if recheck else self._unsent
        queue.extend((unit.number, copy.name) for copy in fresh)

    def _end(self, unit: Unit, kind: OutcomeKind, canonical: str = "") -> None:
        """Give a workunit its outcome, not yet delivered."""
        unit.view = replace(
            unit.view, outcome=kind, canonical=canonical, delivered=False
        )

    def _deliver(self, unit: Unit, now: int) -> None:
        """Tell the outcome of a workunit that has just ended."""
        if unit.view.outcome is None or unit.view.delivered:
            return
        answer = unit.answers.get(unit.view.canonical, "")
        self._ended.append(Ending(unit.number, answer))
        unit.view = replace(unit.view, delivered=True)
        if unit.view.lingering:
            self._look_at(unit, now)
        else:
            self._units.pop(unit.number)

    # -------------------------------------------------------------- validator

    def _answer(self, unit: Unit, now: int) -> None:
        """Answer what the rules ask, and write it (the engine's `verdicts`)."""
        for action in next_actions(unit.view, now):
            match action:
                case Check(copy):
                    unit.change(copy, validity=Validity.CHECKED)
                case Judge(copies):
                    self._judge(unit, copies, now)
                case Compare(copy):
                    self._compare(unit, copy, now)
        self._reward(unit)

    def _judge(self, unit: Unit, copies: tuple[str, ...], now: int) -> None:
        """Look for a quorum; a canonical result ends the workunit."""
        answers, quorum = unit.answers, unit.view.in_force.min_quorum
        found = judge(copies, quorum, lambda a, b: answers[a] == answers[b])
        if not found.canonical:
            for copy in copies:
                unit.change(copy, validity=Validity.INCONCLUSIVE)
            return
        self._decide_valid(unit, found.same, compared=len(found.same) > 1)
        self._decide_invalid(unit, [c for c in copies if c not in found.same], now)
        self._end(unit, OutcomeKind.CANONICAL, found.canonical)
        rate = self._policy.spot_check_rate
        chosen = rate > 0 and self._draw() < rate
        checked = chosen and self._begin_check(unit)
        stragglers = has_stragglers(unit.view)
        unit.view = replace(unit.view, lingering=bool(checked or stragglers))

    def _begin_check(self, unit: Unit) -> bool:
        """Make a re-check, unless nobody can do it or one of ours has agreed."""
        agreed = {
            unit.hosts[place]
            for place, copy in enumerate(unit.view.results)
            if copy.validity is Validity.VALID
        }
        if not self._hosts.own or self._hosts.own & agreed:
            return False
        self._add_copies(unit, 1, recheck=True)
        unit.check_pending = True
        return True

    def _compare(self, unit: Unit, copy: str, now: int) -> None:
        """Compare what came after the end with the canonical result."""
        same = unit.answers[copy] == unit.answers[unit.view.canonical]
        if not unit.view.results[unit.place(copy)].recheck:
            if same:
                self._decide_valid(unit, [copy], compared=True)
            else:
                self._decide_invalid(unit, [copy], now)
        elif unit.view.doubt:
            self._take_opinion(unit, copy, now, same=same)
        elif not unit.check_pending:
            found = Validity.VALID if same else Validity.TOO_LATE
            unit.change(copy, validity=found)
        else:
            unit.change(copy, validity=Validity.VALID)
            if same:
                self._end_check(unit, CheckVerdict.SAME, now)
            elif unit.check_pending:
                unit.change(copy, recheck=CheckVerdict.DOUBTED)

    def _take_opinion(self, unit: Unit, copy: str, now: int, *, same: bool) -> None:
        """Take a second opinion on a re-check that differed."""
        like_first = not same and unit.answers[copy] == unit.answers[unit.view.doubt]
        verdict = second_verdict(
            like_canonical=same, like_first=like_first, both_resumed=False
        )
        self._end_check(unit, verdict, now)
        agrees = same or like_first
        unit.change(copy, validity=Validity.VALID if agrees else Validity.TOO_LATE)

    def _end_check(self, unit: Unit, verdict: CheckVerdict, now: int) -> None:
        """End a spot check; ban whom it showed to be wrong."""
        if not unit.check_pending:
            return
        unit.check_pending = False
        for copy in unit.view.results:
            if copy.recheck:
                unit.change(copy.name, recheck=CheckVerdict.SECOND)
        if verdict is CheckVerdict.DIFFERENT:
            for blamed, host in self._blamed(unit):
                self._hosts.caught.setdefault(host, blamed)
                self._ban(host, now)

    def _blamed(self, unit: Unit) -> list[tuple[str, int]]:
        """Return copies and hosts, other than ours, that gave the canonical answer."""
        pairs = zip(unit.hosts, unit.view.results, strict=True)
        return [
            (copy.name, host)
            for host, copy in pairs
            if copy.validity is Validity.VALID
            and not copy.recheck
            and host not in self._hosts.own
        ]

    def _decide_valid(
        self, unit: Unit, copies: Iterable[str], *, compared: bool
    ) -> None:
        """Make copies valid; compared with another host's, it counts for the record."""
        for copy in copies:
            unit.change(copy, validity=Validity.VALID)
            if compared:
                self._hosts.agreed(unit.hosts[unit.place(copy)])

    def _decide_invalid(self, unit: Unit, copies: Iterable[str], now: int) -> None:
        """Make copies invalid; their hosts begin again."""
        for copy in copies:
            unit.change(copy, validity=Validity.INVALID)
            host = unit.hosts[unit.place(copy)]
            self._hosts.caught.setdefault(host, copy)
            self._hosts.failed(host, now)

    def _reward(self, unit: Unit) -> None:
        """Count each valid copy once for its host's quota (the engine pays credit)."""
        for place, copy in enumerate(unit.view.results):
            if copy.validity is Validity.VALID and copy.name not in unit.credited:
                unit.credited.add(copy.name)
                self._hosts.paid(unit.hosts[place])

    def _ban(self, host: int, now: int) -> None:
        """Give a host no more work, and let nothing of it decide any more."""
        self._hosts.ban(host)
        counted = {ResultOutcome.SUCCESS, ResultOutcome.NO_REPLY, ResultOutcome.NONE}
        for number, copy in self._held.pop(host, ()):
            unit = self._units.get(number)
            if unit is None or unit.view.outcome is not None:
                continue
            if unit.view.results[unit.place(copy)].outcome in counted:
                unit.change(
                    copy,
                    state=ResultProgress.OVER,
                    outcome=ResultOutcome.INVALID,
                    validity=Validity.INVALID,
                )
                self._look_at(unit, now)
