"""BOINC's rules once more, as a small project that keeps everything in memory.

Written to be read beside a description of BOINC, not beside our rules: no views, no
actions, no database; one word says where a copy is. `test_state_machine` plays random
events on this and on the engine and compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RECORD_OF_TRUST = 10
SPOT_CHECK_RATE = 0.5
SECOND_OPINIONS = 3
EXCUSES = 2
ERRORS = {"error", "bad"}


@dataclass(frozen=True)
class Host:
    user: int
    key: str
    kind: str  # class, empty: unknown


@dataclass
class Copy:
    """`at`: new, out, fresh, answer, good, wrong, late, or how it failed."""

    number: int
    at: str = "new"
    host: Host | None = None
    machine: str = ""  # what it counts as
    deadline: int = 0
    answer: str = ""  # ends in ~ where the run was resumed
    recheck: bool = False
    open: bool = False  # a re-check for anybody

    @property
    def said(self):
        return self.answer.rstrip("~")


@dataclass
class Workunit:
    limits: object  # a Redundancy
    not_after: int
    homogeneous: bool
    alone: bool
    copies: list[Copy] = field(default_factory=list)
    end: str = ""
    kind: str = ""  # class of host that has it
    kept: bool = False  # its canonical answer is still here
    truth: str = ""  # the canonical answer
    check: str = ""  # pending, doubted, same, different, disputed, unfinished
    doubt: Copy | None = None  # the re-check that differed

    @property
    def quorum(self):
        return 1 if self.alone else self.limits.min_quorum

    @property
    def patience(self):
        return max(10, 2 * self.limits.max_total)

    @property
    def target(self):
        return 1 if self.alone else self.limits.target_results

    def at(self, *words):
        return [copy for copy in self.copies if copy.at in words]

    def issuable(self, now):
        return now + self.limits.delay_bound_s <= self.not_after

    def make(self, count, *, recheck=False):
        for _ in range(count):
            self.copies.append(Copy(len(self.copies), recheck=recheck))

    def finish(self, end):
        self.end = end
        for copy in self.at("new", "out") if end != "canonical" else self.at("new"):
            copy.at = "dropped"


class Project:
    def __init__(self, *, ours, records, newcomers=(), first_with=()):
        self.now = 1_800_000_000
        self.luck = 0.9
        self.ours = set(ours)  # trusted users
        self.records = dict(records)
        self.banned = set()
        self.excuses = {}
        self.newcomers = set(newcomers)
        self.first_with = dict(first_with)  # user by key
        self.turned = {}  # copies in a row that a user turned away
        self.paused = {}  # user: until when
        self.thanked = set()
        self.workunits = []

    # -------------------------------------------------------------- what hosts do

    def create(self, limits, life_s, *, homogeneous, adaptive):
        alone = adaptive and limits.min_quorum > 1
        made = Workunit(limits, self.now + life_s, homogeneous, alone)
        made.make(made.target)
        self.workunits.append(made)

    def fetch(self, host):
        """Return (workunit, copy number) of what the host gets."""
        self.first_with.setdefault(host.key, host.user)
        given = []
        for place, unit in enumerate(self.workunits):
            copy = self._copy_for(unit, host)
            if copy is not None:
                copy.at, copy.host = "out", host
                copy.machine = self.machine(host)
                copy.deadline = self.now + unit.limits.delay_bound_s
                if not unit.end:
                    unit.kind = host.kind if unit.homogeneous else ""
                    unit.alone = unit.alone and self._trusts(host)
                given.append((place, copy.number))
        return given

    def _copy_for(self, unit, host):
        had = {copy.host.user for copy in unit.copies if copy.host}
        machines = {copy.machine for copy in unit.copies if copy.host}
        turned = len(unit.at("refused", "aborted"))
        unfit = unit.homogeneous and (not host.kind or unit.kind not in ("", host.kind))
        if (
            self.is_banned(host)
            or unfit
            or not unit.issuable(self.now)
            or self.is_paused(host)
            or host.user in had
            or {host.key, self.machine(host)} & machines
        ):
            return None
        for copy in unit.at("new"):
            checks = unit.kept and copy.recheck
            welcome = host.user not in self.newcomers or turned < unit.patience // 2
            if (not unit.end and welcome) or (
                checks and (copy.open or host.user in self.ours)
            ):
                return copy
        return None

    def is_banned(self, host):
        return host in self.banned

    def is_paused(self, host):
        return self.now < self.paused.get(host.user, 0)

    def machine(self, host):
        """A CPID is the machine of who showed it first; others are machines apart."""
        first = self.first_with[host.key] == host.user
        return host.key if first else f"{host.user}~{host.key}"

    def _trusts(self, host):
        record = self.records.get(host, 0)
        proven = record >= RECORD_OF_TRUST and self.luck >= 1 / record
        return host.user in self.ours or proven

    def receives(self, unit, copy):
        return (not unit.end or unit.kept) and copy.at in ("out", "silent")

    def report(self, unit, copy, what):
        """`what`: error, aborted, or an answer."""
        if not self.receives(unit, copy):
            return
        if what not in ("error", "aborted"):
            copy.at, copy.answer = "fresh", what
        elif copy.at == "out":
            copy.at = what
            self._forget_record(copy.host)
            if what == "aborted":
                self._turn_away(copy.host.user)

    def cancel(self, unit):
        if not unit.end:
            unit.finish("cancelled")

    # -------------------------------------------------------------- what the project does

    def settle(self):
        before = None
        while before != repr(self.workunits):
            before = repr(self.workunits)
            self._thank()
            for unit in [one for one in self.workunits if not one.end]:
                while not unit.end and self._move(unit):
                    pass
            if before == repr(self.workunits):
                for unit in [one for one in self.workunits if one.kept]:
                    self._move_ended(unit)
                    self._thank()

    def _move(self, unit):
        """Do one thing for a workunit without an end; False when it has to wait."""
        if self._hear(unit):
            return True
        for answer in unit.at("answer"):
            agree = [one for one in unit.at("answer") if one.said == answer.said]
            if len(agree) >= unit.quorum:
                self._canonical(unit, answer, agree)
                return True
        if unit.kind and not unit.at("out", "silent", "answer"):
            unit.kind = ""
        return self._end(unit) or self._replenish(unit)

    def _hear(self, unit):
        """Notice silence and look at each new answer by itself."""
        late = [copy for copy in unit.at("out") if copy.deadline < self.now]
        for copy in late:
            copy.at = "silent"
            self._forget_record(copy.host)
        fresh = [] if unit.end and self.now > unit.not_after else unit.at("fresh")
        for copy in fresh:
            self._read(unit, copy)
            if unit.end == "validator_failed":
                break
        return bool(late or fresh)

    def _read(self, unit, copy):
        words = {"bad": "bad", "optin": "refused", "fatal": "late"}
        copy.at = words.get(copy.said, "answer")
        if copy.at == "bad":
            self._forget_record(copy.host)
        if copy.at == "refused":
            self._turn_away(copy.host.user)
        if copy.at == "late" and not unit.end:
            unit.finish("validator_failed")

    def _canonical(self, unit, answer, agree):
        unit.truth = answer.said
        if unit.quorum == 1:
            answer.at = "good"  # the others are compared afterwards
        else:
            for copy in unit.at("answer"):
                copy.at = "good" if copy in agree else "wrong"
                self._record(copy, valid=copy in agree)
        unit.finish("canonical")
        mine = any(copy.host.user in self.ours for copy in unit.at("good"))
        if self.luck < SPOT_CHECK_RATE and self.ours and not mine:
            unit.check = "pending"
            unit.make(1, recheck=True)
        unit.kept = bool(unit.at("out", "answer", "fresh")) or bool(unit.check)

    def _end(self, unit):
        limits = unit.limits
        answers, waiting = len(unit.at("answer")), unit.at("new", "out")
        if len(unit.at(*ERRORS)) > limits.max_error:
            unit.finish("too_many_errors")
        elif answers > limits.max_success:
            unit.finish("too_many_success")
        elif len(unit.at("refused", "aborted")) > unit.patience:
            unit.finish("too_many_refusals")
        elif (
            self._missing(unit)
            and self._total(unit) >= limits.max_total
            and (not waiting or answers + len(waiting) < unit.quorum)
        ):
            unit.finish("too_many_total")
        if not unit.end and not unit.issuable(self.now):
            for copy in unit.at("new"):
                copy.at = "dropped"
            if not unit.at("out"):
                unit.finish("admission_ended")
        return bool(unit.end)

    def _total(self, unit):
        return len(unit.copies) - len(unit.at("refused", "aborted", "dropped"))

    def _missing(self, unit):
        answers = len(unit.at("answer"))
        more = answers + 1 if answers >= unit.quorum else 0
        return max(0, max(unit.target, more) - answers - len(unit.at("new", "out")))

    def _replenish(self, unit):
        room = unit.limits.max_total - self._total(unit)
        count = min(self._missing(unit), room) if unit.issuable(self.now) else 0
        unit.make(max(0, count))
        return count > 0

    def _move_ended(self, unit):
        self._drop_needless(unit)
        self._hear(unit)
        for copy in unit.at("answer") if self.now <= unit.not_after else ():
            same = copy.said == unit.truth
            if copy.recheck:
                self._compare_recheck(unit, copy, same)
            else:
                copy.at = "good" if same else "wrong"
                self._record(copy, valid=same)
        self._ask_again(unit)
        self._drop_needless(unit)
        if not unit.at("new", "out") or self.now > unit.not_after:
            unit.kept = False
            if unit.check in ("pending", "doubted"):
                unit.check, unit.doubt = "unfinished", None
            for copy in unit.at("answer", "fresh"):
                copy.at = "late"

    def _drop_needless(self, unit):
        """Nobody gets a copy that cannot end in time, or whose check is over."""
        over = unit.check not in ("pending", "doubted")
        for copy in unit.at("new"):
            if over or not unit.issuable(self.now):
                copy.at = "dropped"

    # -------------------------------------------------------------- spot checks

    def _compare_recheck(self, unit, copy, same):
        """One re-check that differs is a doubt; a second opinion decides."""
        copy.at = "good"
        if unit.check not in ("pending", "doubted"):
            copy.at = "good" if same else "late"
        elif unit.check == "pending":
            unit.check = "same" if same else "doubted"
            unit.doubt = None if same else copy
        else:
            again = copy.said == unit.doubt.said
            resumed = copy.answer[-1] == unit.doubt.answer[-1] == "~"
            proven = again and not same and not resumed
            unit.check = "different" if proven else "disputed"
            unit.doubt = None
            copy.at = "good" if same or again else "late"
            for one in unit.at("good") if proven else ():
                if not one.recheck:
                    self._punish(one)

    def _ask_again(self, unit):
        others = [one for one in unit.copies if one.recheck and one is not unit.doubt]
        useful = ("new", "out", "fresh", "answer", "good", "late")
        if (
            unit.check == "doubted"
            and unit.issuable(self.now)
            and len(others) < SECOND_OPINIONS
            and not any(one.at in useful for one in others)
        ):
            had = {one.host.user for one in unit.copies if one.host}
            unit.make(1, recheck=True)
            unit.copies[-1].open = not (self.ours - had)

    def _punish(self, copy):
        excuses = self.excuses.get(copy.host, 0)
        if copy.answer.endswith("~") and excuses < EXCUSES:
            if copy.host.user not in self.ours:
                self.excuses[copy.host] = excuses + 1
                self._forget_record(copy.host)
        else:
            self._ban(copy.host)

    # -------------------------------------------------------------- conduct

    def _turn_away(self, user):
        """Patience with 20 in a row, with 3 of a newcomer; then pauses that double."""
        self.turned[user] = self.turned.get(user, 0) + 1
        over = self.turned[user] - (3 if user in self.newcomers else 20)
        if over >= 0:
            until = self.now + min(60 << over, 3600)
            self.paused[user] = max(until, self.paused.get(user, 0))

    def _thank(self):
        """Whose answer was good is no newcomer, and nothing is held against him."""
        for unit in self.workunits:
            for copy in unit.at("good"):
                if (id(unit), copy.number) not in self.thanked:
                    self.thanked.add((id(unit), copy.number))
                    self.newcomers.discard(copy.host.user)
                    self.turned.pop(copy.host.user, None)
                    self.paused.pop(copy.host.user, None)

    # -------------------------------------------------------------- records

    def _forget_record(self, host):
        if host in self.records:
            self.records[host] = 0

    def _record(self, copy, *, valid):
        if valid:
            self.records[copy.host] = self.records.get(copy.host, 0) + 1
        else:
            self._forget_record(copy.host)

    def _ban(self, host):
        if host.user in self.ours:
            return
        self.banned.add(host)
        self._forget_record(host)
        for unit in [one for one in self.workunits if not one.end or one.kept]:
            for copy in unit.at("out", "silent", "fresh", "answer"):
                if copy.host == host:
                    copy.at = "bad"
