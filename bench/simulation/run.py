"""One run: a population works through a policy's workunits on a virtual clock."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.simulation.hosts import RIGHT, Host, HostKind, HostNature
from bench.simulation.project import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.simulation.project import Assignment, Ending, Project
    from bench.simulation.scenario import Scenario

__all__ = ["Tally", "draws", "lots", "silent", "simulate"]

BEGINS_AT: Final = 1_800_000_000
"""Of the virtual clock, s since 1970: quotas count by day."""

IN_STEP_S: Final = 0.001


@dataclass(slots=True)
class Tally:
    """What was seen.

    Attributes:
        right: workunits that ended with the right answer.
        wrong: with a falsified one.
        unfinished: without an answer.
        issued: copies handed out.
        returned: answers that came back while or after their workunit ran.
        by_cheats: copies handed out to cheats.
        by_own: copies handed out to the project's machines.
        first_pairs: workunits of which two answers came back.
        first_pairs_wrong: of these, where the first two were the same wrong one.
        wrong_by: falsified copies of each cheat, in the order in which they came back.
        answers_of: answers that came back, by workunit.
        accepted: how each workunit ended, empty where without an answer.
        seconds: of the virtual clock.
        banned: hosts banned.
        banned_honest: of these, honest ones.
    """

    right: int = 0
    wrong: int = 0
    unfinished: int = 0
    issued: int = 0
    returned: int = 0
    by_cheats: int = 0
    by_own: int = 0
    first_pairs: int = 0
    first_pairs_wrong: int = 0
    wrong_by: dict[int, list[str]] = field(default_factory=dict)
    answers_of: Counter[int] = field(default_factory=Counter)
    accepted: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    banned: int = 0
    banned_honest: int = 0

    @property
    def cheats_share(self) -> float:
        """Share of the volunteers' copies that went to cheats."""
        return self.by_cheats / max(1, self.issued - self.by_own)

    @property
    def ended(self) -> int:
        """How many workunits ended."""
        return self.right + self.wrong + self.unfinished


def silent(*_: object) -> None:
    """Tell nobody how far a run is."""


def draws(scenario: Scenario) -> Callable[[], float]:
    """Return the project's own draws, which no host foresees."""
    return random.Random(f"{scenario.seed}/project").random  # noqa: S311 - a simulation


def lots(scenario: Scenario) -> Callable[[], float]:
    """Return the project's lots, by which copies go out, which no host foresees."""
    return random.Random(f"{scenario.seed}/lots").random  # noqa: S311 - a simulation


def simulate(
    scenario: Scenario,
    project: Project,
    progress: Callable[[int], None] = silent,
) -> Tally:
    """Let the population work until every workunit has ended.

    Args:
        scenario: who and what.
        project: whom they work for; it sees whole seconds.
        progress: told how many workunits have ended, now and then.

    Raises:
        ValueError: it cannot be simulated.
    """
    scenario.check()
    return _Run(scenario, project).play(progress)


class _Run:
    """The state of one run: hosts, their next calls, what they hold."""

    def __init__(self, scenario: Scenario, project: Project) -> None:
        self._scenario = scenario
        self._project = project
        self._nature = HostNature(scenario)
        self._hosts: dict[int, Host] = {}
        self._calls: list[tuple[float, int]] = []
        self._holds: dict[int, tuple[Assignment, ...]] = {}
        self._partner: dict[int, int] = {}
        self._followers: frozenset[int] = frozenset()
        self._answers: defaultdict[int, list[str]] = defaultdict(list)
        self._created = 0
        self._tally = Tally()

    def play(self, progress: Callable[[int], None]) -> Tally:
        """Run it."""
        self._populate()
        self._create(0.0)
        told, now = 0, 0.0
        while self._tally.ended < self._scenario.tasks:
            now, number = heapq.heappop(self._calls)
            self._let_call(self._hosts[number], now)
            if self._tally.ended - told >= self._scenario.tasks // 10 + 1:
                told = self._tally.ended
                progress(told)
        self._tally.seconds = now
        banned = self._project.banned()
        self._tally.banned = len(banned)
        kinds = [self._hosts[host].kind for host in banned]
        self._tally.banned_honest = kinds.count(HostKind.HONEST)
        return self._tally

    # ------------------------------------------------------------------ hosts

    def _populate(self) -> None:
        """Make the hosts; cheats among them, ours first."""
        scenario = self._scenario
        for _ in range(scenario.own):
            self._join(HostKind.OWN, 0.0)
        cheats = round(scenario.hosts * scenario.cheats)
        made = [
            self._join(kind, 0.0)
            for kind, count in (
                (HostKind.CHEAT, cheats),
                (HostKind.HONEST, scenario.hosts - cheats),
            )
            for _ in range(count)
        ]
        if scenario.in_step:
            first = iter(made[:cheats])
            self._partner = {
                one.id: two.id for one, two in zip(first, first, strict=False)
            }
            self._followers = frozenset(self._partner.values())
            self._calls = [c for c in self._calls if c[1] not in self._followers]
            heapq.heapify(self._calls)

    def _join(self, kind: HostKind, now: float) -> Host:
        """Let a new host come."""
        host = self._nature.make(kind)
        self._hosts[host.id] = host
        first = now + self._nature.first_call(host)
        heapq.heappush(self._calls, (first, host.id))
        return host

    def _let_call(self, host: Host, now: float) -> None:
        """Let a host report and ask, then go on with what it got."""
        clock = BEGINS_AT + int(now)
        reports = self._reports(host)
        given = self._project.call(host, reports, self._scenario.batch, clock)
        self._count(host, given)
        self._holds[host.id] = given
        for ending in self._project.settle(clock):
            self._note(ending)
        self._create(now)
        self._send_off(host, given, now)
        follower = self._partner.get(host.id)
        if follower is not None:
            heapq.heappush(self._calls, (now + IN_STEP_S, follower))

    def _send_off(self, host: Host, given: Sequence[Assignment], now: float) -> None:
        """Decide when a host calls again; one that never does is replaced."""
        if not given:
            again: float | None = self._scenario.poll_s
        else:
            again = self._nature.busy_s(host, len(given))
        if host.id in self._followers:
            return  # it calls when its leader does
        if again is None and host.id not in self._partner:
            self._join(host.kind, now)
            return
        wait = self._scenario.task_s if again is None else again
        heapq.heappush(self._calls, (now + wait, host.id))

    def _reports(self, host: Host) -> tuple[Report, ...]:
        """Return what a host brings of the copies that it held."""
        reports = []
        for one in self._holds.pop(host.id, ()):
            answer = self._nature.answer(host, one.workunit)
            reports.append(Report(one.copy, answer))
            if answer:
                self._tally.returned += 1
                self._tally.answers_of[one.workunit] += 1
                self._answers[one.workunit].append(answer)
            if host.kind is HostKind.CHEAT and answer not in {RIGHT, ""}:
                self._tally.wrong_by.setdefault(host.id, []).append(one.copy)
        return tuple(reports)

    # ------------------------------------------------------------------- work

    def _create(self, now: float) -> None:
        """Keep enough workunits open that nobody waits for long."""
        scenario = self._scenario
        window = scenario.hosts * scenario.batch
        missing = window - (self._created - self._tally.ended)
        missing = min(missing, scenario.tasks - self._created)
        last = self._created + missing == scenario.tasks
        if missing > 0 and (last or missing * 20 >= window):
            numbers = range(self._created, self._created + missing)
            self._project.create(numbers, BEGINS_AT + int(now))
            self._created += missing

    def _count(self, host: Host, given: Sequence[Assignment]) -> None:
        """Count copies that were handed out."""
        self._tally.issued += len(given)
        if host.kind is HostKind.CHEAT:
            self._tally.by_cheats += len(given)
        elif host.kind is HostKind.OWN:
            self._tally.by_own += len(given)

    def _note(self, ending: Ending) -> None:
        """Count how a workunit ended."""
        tally = self._tally
        tally.accepted[ending.workunit] = ending.answer
        if not ending.answer:
            tally.unfinished += 1
        elif ending.answer == RIGHT:
            tally.right += 1
        else:
            tally.wrong += 1
        first = self._answers.pop(ending.workunit, [])[:2]
        if len(first) == 2:
            tally.first_pairs += 1
            tally.first_pairs_wrong += first[0] == first[1] != RIGHT
