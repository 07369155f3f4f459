"""What a work engine does for the server, and what it asks in return (design §1.5).

Two engines stand behind `Engine`: the embedded BOINC-compatible project and a stock
BOINC server. The same contract tests run on both. The engine knows results, hosts,
deadlines and quorums; it never looks into a result file. What a result means is the
server's business, asked through `Validation`; what a finished workunit means is told
through `Assimilator`.

All calls block and are thread-safe; asynchronous callers use a worker thread.
Times are whole seconds since 1970 in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from stoilo.server.engines.programs import AppProgram, CodeSignKey
    from stoilo.server.engines.workunits import WorkunitSpec


@dataclass(frozen=True, slots=True)
class ReceivedResult:
    """A result file that a host uploaded and reported. Its bytes are hostile."""

    # of the result (BOINC's result name); the file's header must say the same
    name: str
    workunit: str  # name of the workunit
    # the file, complete and of the size and digest given here; it stays until
    # `Assimilator.assimilate` has returned for the workunit, the canonical one until
    # nothing can come any more that is to be compared with it
    path: Path
    size: int  # bytes
    digest: str  # plain SHA-256 of the file
    host_id: int  # the reporting host
    user_id: int  # the host's user
    received_at: int  # when the report arrived, s
    cpu_s: float = 0.0  # processor time as the host claims it, s; 0: it does not say
    flops: float = 0.0  # the host's speed as it claims it, FLOP/s; 0: it does not say


class _Verdict(StrEnum):
    @property
    def undecided(self) -> bool:
        """Whether it must be asked for again."""
        return self.value in {"inconclusive", "pending"}


class ResultVerdict(_Verdict):
    """What the server thinks of one result."""

    VALID = "valid"  # well formed, the init validator accepts it
    INVALID = "invalid"  # counts as an error of the host
    INCONCLUSIVE = "inconclusive"  # ask again later (our own trouble)
    PENDING = "pending"  # ask again when `Engine.ask_again` says so
    NOT_FOR_THIS_HOST = "not_for_this_host"  # the volunteer's opt-in refused; uncounted
    FATAL = "fatal"  # the workunit cannot succeed (validator raised or was not bool)


class PairVerdict(_Verdict):
    """What the server thinks of two valid results."""

    SAME = "same"
    DIFFERENT = "different"
    INCONCLUSIVE = "inconclusive"
    PENDING = "pending"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """Answer to `Validation.check`; the code is kept for status and outcome."""

    verdict: ResultVerdict  # of the result by itself
    code: str = ""  # stable code, empty without
    message: str = ""  # one sentence for it
    # the step from which the host says that its run went on after an interruption, 0
    # when it ran in one go
    resumed_at: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Answer to `Validation.compare`."""

    verdict: PairVerdict
    code: str = ""
    message: str = ""


class OutcomeKind(StrEnum):
    """How a workunit ended; exactly one per workunit, for ever."""

    CANONICAL = "canonical"  # a quorum agrees
    TOO_MANY_ERRORS = "too_many_errors"
    TOO_MANY_TOTAL = "too_many_total"
    TOO_MANY_SUCCESS = "too_many_success"  # enough results, no quorum among them
    TOO_MANY_REFUSALS = "too_many_refusals"  # no attached host's opt-in allows it
    VALIDATOR_FAILED = "validator_failed"  # FATAL from check or compare
    ADMISSION_ENDED = "admission_ended"  # needs a result past not_after: a new attempt
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class WorkunitOutcome:
    """The one final outcome of a workunit."""

    workunit: str  # its name
    kind: OutcomeKind  # how it ended
    # the canonical result, only with `OutcomeKind.CANONICAL`
    canonical: ReceivedResult | None = None
    # every result that agreed with the canonical one, itself included; without a
    # canonical one, every result that passed `Validation.check`
    valid: tuple[ReceivedResult, ...] = ()
    # the code given with the deciding check or comparison, if any, else the code of the
    # last failed result, else empty
    code: str = ""
    message: str = ""  # the text given with it
    # how many results had to agree: 1 where adaptive replication let one trusted host's
    # result stand; 0: as the redundancy says
    quorum: int = 0


class ResultProgress(StrEnum):
    """Where one result (BOINC: result, instance) is."""

    UNSENT = "unsent"
    IN_PROGRESS = "in_progress"
    OVER = "over"


class ResultOutcome(StrEnum):
    """How one result ended; `NONE` until it is over."""

    NONE = "none"
    SUCCESS = "success"
    CLIENT_ERROR = "client_error"
    NO_REPLY = "no_reply"
    ABORTED = "aborted"  # by the volunteer: not the host's error
    INVALID = "invalid"
    NOT_NEEDED = "not_needed"
    REFUSED = "refused"  # not for this host


@dataclass(frozen=True, slots=True)
class ResultView:
    """One result as shown to the task's owner; times are 0 where nothing happened.

    As its host claims it, 0 where it does not say: `cpu_s` is the processor time (so far),
    s; `fraction_done` how far a run is, 0 to 1.
    """

    name: str
    state: ResultProgress
    outcome: ResultOutcome
    code: str
    sent_at: int
    received_at: int
    cpu_s: float = 0.0
    host: int = 0  # who has it, 0 for nobody; its owner is shown a pseudonym
    fraction_done: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkunitStatus:
    """Where a workunit is."""

    name: str  # of the workunit
    results: tuple[ResultView, ...]  # oldest first
    outcome: OutcomeKind | None  # None while it runs
    users_attached: int  # users with a host seen lately that may take its app
    explanation: str  # one sentence, for example "needs 2 distinct users, 1 attached"


class NotDecidedYet(StoiloError):
    """Validators must run first; `Engine.ask_again` will say when they have."""


class Validation(Protocol):
    """The server's judgement of results. Called outside of any transaction.

    No call waits for a validator: until it has run the answer is PENDING, and the engine
    goes on with other workunits until it is told (`Engine.ask_again`).

    Answers must be repeatable: after a crash the engine asks again. An exception is
    treated as INCONCLUSIVE and logged. Results that come late, and re-checks, are asked
    about after the workunit's outcome was assimilated.
    """

    def check(self, result: ReceivedResult) -> ResultCheck:
        """Judge one result by itself: header, decoding, the task's init validator."""
        ...

    def compare(self, left: ReceivedResult, right: ReceivedResult) -> Comparison:
        """Say whether two results that passed `check` are the same answer."""
        ...


@runtime_checkable
class Waits(Protocol):
    """A judgement that can be waited for, by an engine whose callers cannot come again."""

    def wait(self, workunit: str, seconds: float) -> bool:
        """Say whether what is PENDING is answered in so many s; no use for a busy account."""
        ...


class Assimilator(Protocol):
    """The server's ear for finished workunits."""

    def assimilate(self, outcome: WorkunitOutcome) -> None:
        """Take the outcome durably before returning; idempotent by the workunit's name.

        Called at least once and, unless the process dies in between, exactly once. When
        it raises, the engine calls again later; after `NotDecidedYet` when it is told
        so (`Engine.ask_again`) or some time later. Result files may go away afterwards.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """Results of admitted attempts to volunteers and back."""

    def create_workunits(self, specs: Sequence[WorkunitSpec]) -> None:
        """Store all of `specs` in one durable step, or none.

        Idempotent by name: a name that exists is left as it is.

        Raises:
            UsageError: ``STO-E001`` for a spec that makes no sense; ``STO-B097`` for a
                name that exists with another admission: the caller's tables are older.
            TrustError: ``STO-E002`` when a file does not have its digest.
            InternalError: ``STO-R030`` when the disk refuses.
        """
        ...

    def cancel(self, *names: str) -> None:
        """End workunits with `OutcomeKind.CANCELLED` unless they have ended already.

        Many cost little more than one. Unknown names are ignored. The outcomes arrive
        through the `Assimilator`.
        """
        ...

    def ask_again(self, name: str) -> None:
        """Take it that what was PENDING about a workunit can be answered now.

        Does not block; to be called from any thread. Unknown names are ignored.
        """
        ...

    def status(self, name: str) -> WorkunitStatus | None:
        """Return where a workunit is, None for names never created."""
        ...

    def settled(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` of which the assimilator will hear nothing any more.

        That is: never created, or told and taken before. A server whose tables are
        older than the engine's asks, because it may wait for such outcomes.
        """
        ...

    def set_release(self, bundle: bytes) -> None:
        """Store the release metadata that goes out from now on.

        `bundle` comes from `signer.release_pack`; every result dispatched later
        carries it under the open name ``release``.
        """
        ...

    def set_programs(self, programs: Sequence[AppProgram], key: CodeSignKey) -> None:
        """Store what stock clients run from now on, instead of what they ran before.

        Every app gets the program of the host's platform. A platform's version number
        grows whenever its files or signatures change and never comes back; files of a
        former version stay while a result that was sent with it may be on its way.

        Raises:
            TrustError: ``STO-E002`` when a file does not have its digest; ``STO-K076``
                when a signature is not over its file by `key`. Nothing is changed then.
            UsageError: ``STO-E001`` two programs for one platform, or an unusable name.
            InternalError: ``STO-R030`` when the disk refuses.
        """
        ...

    def start(self, validation: Validation, assimilator: Assimilator) -> None:
        """Begin to move workunits; outcomes left from before a crash arrive first."""
        ...

    def close(self) -> None:
        """Stop moving workunits; returns when no call to the server is in progress."""
        ...


@runtime_checkable
class HostRecords(Protocol):
    """An engine that takes an owner's word on results that were believed.

    The stock engine does not: BOINC's record of a host is its scheduler's and validator's.
    """

    def reject(
        self, name: str, owners: Callable[[Sequence[str]], Mapping[str, int]]
    ) -> int:
        """Count the results that a workunit's outcome came from against their hosts.

        Each once, and only fresh ones; the outcome stays. `owners` says which accounts
        workunits belong to: one account's word counts only so often against a host.
        Returns how many were counted, 0 for unknown names.
        """
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """What volunteers gave for workunits, as far as their results are kept."""

    cpu_s: float  # processor time of results that count, as their hosts claim it, s
    credit: float  # granted, in BOINC's units


@runtime_checkable
class Costs(Protocol):
    """An engine that adds up what workunits cost; the stock one leaves that to BOINC."""

    def cost(self, names: Sequence[str]) -> Cost:
        """Return the cost of these workunits together, up to some thousands."""
        ...


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One moment of an engine. Ages are s, 0 where nothing waits."""

    workunits: int  # under way
    # by (state, outcome), both of `interface`'s lists
    results: Mapping[tuple[str, str], int]
    unsent_age_s: int  # of the oldest result that nobody has
    to_validate: int  # results that the validator has not seen
    to_validate_age_s: int  # since the oldest of them was reported
    outcomes_waiting: int  # ended workunits that the server has not taken
    accounts: int  # volunteers' accounts
    hosts: Mapping[str, int]  # how many called within a time, by that time in words
    hosts_banned: int  # hosts whose results count for nothing


class MeasuredEngine(Protocol):
    """An engine that can be watched."""

    def check_database(self) -> None:
        """Return when its database has answered a small question.

        Raises:
            InternalError: it cannot be read.
        """
        ...

    def figures(self) -> EngineFigures:
        """Return what it holds now, or held not long ago.

        Raises:
            InternalError: its database cannot be read.
        """
        ...
