"""Calls of validators wait here for a jail: fair by account, bounded, ended by cancel.

A researcher's validator may take its whole limit for every item, and there are few jails.
So nobody waits for a call: who asks gets what is known and `NotDecidedYet` for the rest,
and is told when there is more. The unit is one call (one item, or one pair), so a workunit
of many items yields after each. What an account's calls have taken lately decides when it
is its turn again (`core.fairqueue`); what a workunit's have taken is bounded, and one that
takes more ends with ``STO-R059``.

All of it is in memory: what a restart forgets is asked again, by whoever waits for it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError, UserCodeError
from stoilo.core.fairqueue import FairQueue, Shares, Turn
from stoilo.server.validation.validators import JudgeTrouble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stoilo.server.validation.validators import Call, Validators


log = logging.getLogger(__name__)

WORKUNIT_S: Final = 120.0
ITEM_S: Final = 2.0
"""Jail time that the validators of one workunit may take, s; and for each item more, s."""

BUSY_S: Final = 10.0
HALF_LIFE_S: Final = 600.0
WAITING_BYTES: Final = 64 * 1024 * 1024
ALL_BYTES: Final = 256 * 1024 * 1024
"""Values that may wait for one account, and for all; of others only the name is kept."""

ANSWERS: Final = 100_000
"""Answers remembered for one account; its oldest workunits are asked anew."""

CASES: Final = 20_000
"""Workunits remembered in all; beyond, an account that asks loses its oldest ones."""

CALL_BYTES: Final = 512  # what a call that waits costs beside its values, bytes
WOKEN: Final = 8
DROPPED: Final = 10_000
LEAST_JAILS: Final = 2
MOST_JAILS: Final = 9


def machine_shares(processors: int | None = None) -> Shares:
    """Return a jail a processor: one jail is kept free, and so one processor is.

    Whatever slow validators do, the server and the gate's jail find that one.
    """
    jails = max(LEAST_JAILS, min(processors or os.cpu_count() or 1, MOST_JAILS))
    return Shares(jails, busy_above=BUSY_S, half_life_s=HALF_LIFE_S)


@dataclass(frozen=True, slots=True)
class Matter:
    """Whose validators are called."""

    account: int  # of the task's owner
    workunit: str  # its name
    items: int = 1  # calls that the task makes; they bound what its validators may take

    @property
    def budget_s(self) -> float:
        """What all calls of its validators together may take, s."""
        return WORKUNIT_S + ITEM_S * self.items


@dataclass(slots=True)
class _Case:
    """What is known of one workunit: its answers, and calls that wait or run."""

    matter: Matter
    answers: dict[bytes, bool | StoiloError] = field(default_factory=dict)
    waiting: dict[bytes, int] = field(default_factory=dict)  # bytes
    stops: dict[bytes, Callable[[], None]] = field(default_factory=dict)
    running: set[bytes] = field(default_factory=set)
    used_s: float = 0.0
    dropped: bool = False
    waited: int = 0  # who waits for its answers, and need not be told of them

    @property
    def open(self) -> bool:
        """Whether calls wait or run."""
        return bool(self.waiting or self.running)


@dataclass(frozen=True, slots=True)
class _Entry:
    case: _Case
    key: bytes
    call: Call


class Docket:
    """The calls of all workunits' validators; thread-safe."""

    def __init__(
        self,
        validators: Validators,  # makes a call, in the thread that calls it
        # is told the names of workunits of which there is more to say; must not block
        notify: Callable[[str], None] = lambda workunit: None,  # noqa: ARG005 - who asks polls
        shares: Shares | None = None,  # how many calls at once, and whose
        clock: Callable[[], float] = time.monotonic,  # steady, s
    ) -> None:
        shares = shares or machine_shares()
        self._validators = validators
        self._notify = notify
        self._clock = clock
        self._queue: FairQueue[_Entry] = FairQueue(shares)
        self._pool = ThreadPoolExecutor(shares.slots, thread_name_prefix="stoilo-judge")
        self._changed = threading.Condition()
        self._cases: dict[str, _Case] = {}
        self._bytes: defaultdict[int, int] = defaultdict(int)
        self._remembered: defaultdict[int, int] = defaultdict(int)
        self._put_off: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._dropped: dict[str, None] = {}
        self._closing = False

    def known(self, matter: Matter, call: Call) -> bool | None:
        """Return the answer to a call, None where there is none yet.

        Raises:
            UserCodeError: the validator failed, or the workunit's calls have taken too
                long (``STO-R059``).
            JudgeTrouble: the jail failed; asked again, it is tried again.
        """
        key = _key_of(call)
        with self._changed:
            case = self._cases.get(matter.workunit)
            if case is None:
                return None
            answer = case.answers.get(key)
            if isinstance(answer, JudgeTrouble):
                del case.answers[key]
                self._remembered[matter.account] -= 1
            if answer is None and case.used_s > matter.budget_s:
                answer = _over_budget(matter)
        if isinstance(answer, StoiloError):
            raise answer
        return answer

    def put(self, matter: Matter, calls: Sequence[Call]) -> None:
        """Let calls wait for a jail, those of a dropped workunit excepted."""
        with self._changed:
            if matter.workunit in self._dropped or self._closing:
                return
            if self._is_full(matter, calls):
                self._put_off[matter.account][matter.workunit] = None
                return
            case = self._cases.setdefault(matter.workunit, _Case(matter))
            self._enter(case, calls)
            self._forget_old(matter)
            told = [] if case.open else [matter.workunit]  # answered in between
            self._fill()
        self._tell(told)

    def wait(self, workunit: str, seconds: float) -> bool:
        """Wait until nothing of a workunit waits or runs; False when that takes longer.

        Nobody waits for a busy account.
        """
        with self._changed:
            case = self._cases.get(workunit)
            if case is None or self._queue.is_busy(case.matter.account, self._clock()):
                return False
            case.waited += 1
            try:
                return self._changed.wait_for(lambda: not case.open, seconds)
            finally:
                case.waited -= 1

    def drop(self, workunit: str) -> None:
        """End what waits and runs of a workunit that nobody wants; it cannot come again."""
        with self._changed:
            self._dropped[workunit] = None
            while len(self._dropped) > DROPPED:
                del self._dropped[next(iter(self._dropped))]
            case = self._cases.pop(workunit, None)
            for names in self._put_off.values():
                names.pop(workunit, None)
            if case is None:
                return
            case.dropped = True
            self._withdraw(case)
            self._remembered[case.matter.account] -= len(case.answers)
            stops = list(case.stops.values())
            told = self._wake(case.matter.account)
            self._fill()
            self._changed.notify_all()
        for stop in stops:
            stop()
        self._tell(told)

    def forget(self, workunit: str) -> None:
        """Forget the answers for a workunit whose outcome stands."""
        with self._changed:
            case = self._cases.get(workunit)
            if case is not None and not case.open:
                self._remove(case)

    def close(self) -> None:
        """End every call; what is asked from now on waits for the next start."""
        with self._changed:
            self._closing = True
            cases = list(self._cases)
        for workunit in cases:
            self.drop(workunit)
        self._pool.shutdown()

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        with self._changed:
            return len(self._queue)

    def _is_full(self, matter: Matter, calls: Sequence[Call]) -> bool:
        """Say whether so much waits that of more only the name is kept.

        One workunit of each account may always wait, however large it is.
        """
        own, every = self._bytes[matter.account], sum(self._bytes.values())
        more = sum(_size_of(call) for call in calls)
        return own > 0 and (own + more > WAITING_BYTES or every + more > ALL_BYTES)

    def _enter(self, case: _Case, calls: Sequence[Call]) -> None:
        for call in calls:
            key = _key_of(call)
            if key in case.answers or key in case.waiting or key in case.running:
                continue
            case.waiting[key] = size = _size_of(call)
            self._bytes[case.matter.account] += size
            entry = _Entry(case, key, call)
            self._queue.put(case.matter.account, case.matter.workunit, entry)

    def _forget_old(self, matter: Matter) -> None:
        """Forget the account's oldest answers where there are too many.

        What its workunits have used is remembered longer, or their budgets were none.
        """
        account = matter.account
        if self._remembered[account] <= ANSWERS and len(self._cases) <= CASES:
            return
        for one in list(self._cases.values()):
            if one.open or one.matter.account != account or one.matter == matter:
                continue
            if len(self._cases) > CASES:
                self._remove(one)
            elif self._remembered[account] > ANSWERS:
                self._remembered[account] -= len(one.answers)
                one.answers.clear()

    def _remove(self, case: _Case) -> None:
        """Forget a case of which nothing waits or runs."""
        del self._cases[case.matter.workunit]
        self._remembered[case.matter.account] -= len(case.answers)

    def _withdraw(self, case: _Case) -> None:
        """Take out what waits of a case."""
        self._queue.drop(case.matter.account, case.matter.workunit)
        self._bytes[case.matter.account] -= sum(case.waiting.values())
        case.waiting.clear()

    def _fill(self) -> None:
        """Begin what may begin now."""
        while not self._closing and (turn := self._queue.take(self._clock())):
            entry = turn.item
            self._bytes[turn.account] -= entry.case.waiting.pop(entry.key)
            entry.case.running.add(entry.key)
            self._pool.submit(self._serve, turn)

    def _serve(self, turn: Turn[_Entry]) -> None:
        """Make one call, in a thread of the pool."""
        entry, start = turn.item, self._clock()
        answer: bool | StoiloError
        try:
            answer = self._validators.decide(
                entry.call, lambda stop: self._watch(entry, stop)
            )
        except StoiloError as error:
            answer = error
        except Exception:  # the server's code must not lose a turn
            log.exception("a validator of %s was not called", turn.group)
            answer = JudgeTrouble("STO-R042", "the validators' jail cannot be asked")
        self._tell(self._settle(turn, answer, self._clock() - start))

    def _tell(self, workunits: Sequence[str]) -> None:
        for workunit in workunits:
            self._notify(workunit)

    def _watch(self, entry: _Entry, stop: Callable[[], None]) -> None:
        """Keep what ends a call; end it at once where it was dropped meanwhile."""
        with self._changed:
            entry.case.stops[entry.key] = stop
            dropped = entry.case.dropped
        if dropped:
            stop()

    def _settle(
        self, turn: Turn[_Entry], answer: bool | StoiloError, cost_s: float
    ) -> list[str]:
        """Note an answer; return the workunits of which there is more to say."""
        entry, case = turn.item, turn.item.case
        with self._changed:
            self._queue.finish(turn, cost_s, self._clock())
            case.running.discard(entry.key)
            case.stops.pop(entry.key, None)
            case.used_s += cost_s
            if not case.dropped:
                case.answers[entry.key] = answer
                self._remembered[turn.account] += 1
            if isinstance(answer, UserCodeError) or case.used_s > case.matter.budget_s:
                self._withdraw(case)  # what is left changes nothing
            self._fill()
            self._changed.notify_all()
            quiet = case.open or case.dropped or case.waited
            told = [] if quiet else [turn.group]
            return told + self._wake(turn.account)

    def _wake(self, account: int) -> list[str]:
        """Return some workunits that were put off, once there is room for them."""
        names = self._put_off[account]
        if not names or self._bytes[account] > WAITING_BYTES / 2:
            return []
        woken = list(names)[:WOKEN]
        for name in woken:
            del names[name]
        return woken


def _size_of(call: Call) -> int:
    """Return what a call that waits keeps in memory, bytes."""
    return CALL_BYTES + sum(map(len, call.values))


def _key_of(call: Call) -> bytes:
    """Return a digest of all that an answer depends on."""
    program = call.program
    digest = hashlib.sha256()
    parts = (program.source, program.level.encode(), call.op.encode())
    for part in (*parts, call.entry.encode(), *call.values):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _over_budget(matter: Matter) -> UserCodeError:
    return UserCodeError(
        "STO-R059",
        f"the task's validators took more than {matter.budget_s:.0f} s together",
        hint="make the validators cheaper; they run on the server",
    )
