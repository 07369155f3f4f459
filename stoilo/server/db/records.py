"""Frozen records between the server's parts, and the states of tasks and attempts.

One table of steps, pure; no other place decides. A task has attempts; an attempt has one
admission and one workunit. An attempt advances through durable steps, so that a killed
server knows from the row alone what to do next::

    CREATED ──► SEALED ──► LOGGED ──► SIGNED ──► ISSUED ──► DONE
    row        statement  leaf has   envelope   workunit   outcome
    durable    fixed      an index   + proof    exists     stored

Where the policy wants a review and there is none, CREATED goes to PARKED, and back once
a reviewer has signed. Every open state leaves to CLOSED (cancelled, expired, refused
by the signer or by a reviewer).
"""

from __future__ import annotations

import itertools
from enum import StrEnum

import msgspec

from stoilo.core.errors import InternalError
from stoilo.core.types import Redundancy, RunLimits, TaskState


class Owner(msgspec.Struct, frozen=True):
    """An authenticated caller."""

    account_id: int  # row of the account
    name: str  # the account's name, never shown to others
    role: str  # one of `stoilo.server.admission.tokens.Role`
    scope: str  # ``*`` or a comma-separated list of RPC names
    salt: str  # secret of the account's public commitments (64 hex digits)
    suspended: bool = False  # whether the account may only look after what it has


class TaskSpec(msgspec.Struct, frozen=True):
    """Everything about a task that never changes; digests name rows of ``content``."""

    task_module: str  # digest of the source that runs
    entry: str  # function called with one dict
    validator_module: str  # digest of the validators' source, empty when there is none
    init_entry: str  # initial validator, empty = always true
    compare_entry: str  # comparator, empty = equality
    arguments: str  # digest of the encoded skeleton
    blobs: tuple[str, ...]  # digests in the order in which the arguments use them
    level: str  # what the gate chose
    policy_digest: str  # the policy that admitted the source
    source_digest: str  # what the verdict was about
    flavor: str  # id of the manifest (SHA-256 hex)
    redundancy: Redundancy  # results and agreement
    limits: RunLimits  # limits in force, level defaults applied
    label: str = ""  # the researcher's own words
    publish_source: bool = False  # the submitter's recorded choice
    map_items: int = 0  # 0 = one call
    topics: tuple[str, ...] = ()  # what the work is about
    codes: tuple[str, ...] = ()  # codes of the gate's findings, for the public record
    libraries: tuple[str, ...] = ()  # import names of those that source and values need


class TaskRow(msgspec.Struct, frozen=True):
    """One task as stored."""

    task_id: str
    account_id: int
    request_digest: str
    state: TaskState
    attempt: int
    spec: TaskSpec
    created_at: int
    finished_at: int | None = None


class AttemptRow(msgspec.Struct, frozen=True):
    """One attempt as stored; fields fill from left to right as it advances."""

    task_id: str
    number: int
    state: str
    created_at: int
    policy_digest: str = ""
    admitted_at: int | None = None
    not_after: int | None = None
    statement: bytes | None = None
    leaf: bytes | None = None
    log_index: int | None = None
    proof: bytes | None = None
    envelope: bytes | None = None
    last_code: str = ""

    @property
    def workunit(self) -> str:
        """Name of the attempt's only workunit."""
        return workunit_name(self.task_id, self.number)


def workunit_name(task_id: str, number: int) -> str:
    """Return the name of an attempt's only workunit."""
    return f"{task_id}_{number}"


class ItemResult(msgspec.Struct, frozen=True):
    """Outcome of one item of a map task (wire names of `ItemOutcome`)."""

    state: TaskState
    value: bytes | None = None
    error_type: str = ""
    error_text: str = ""
    code: str = ""
    value_blob: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """The one final outcome of a task (I6)."""

    state: TaskState  # one of the five final states
    attempt: int  # the attempt that decided
    value: bytes | None = None  # encoded skeleton when succeeded and small
    value_blob: str = ""  # else the digest of the stored blob
    error_type: str = ""  # class name of the task's exception
    error_text: str = ""  # bounded text of it, or the reason of a system error
    code: str = ""  # stable code, empty when succeeded
    output: str = ""  # captured print of the canonical result
    items: tuple[ItemResult, ...] = ()  # outcomes by item for map tasks
    agreeing: int = 0  # results that agreed on it; not stored but in the public record


class Reviews(msgspec.Struct, frozen=True):
    """The reviewers' signatures that an attempt is admitted with."""

    texts: tuple[str, ...] = ()  # DSSE envelopes, one a reviewer
    not_after: int | None = None  # when the first of them ends, s; None without any


NO_REVIEWS = Reviews()


MAX_ATTEMPTS = 8  # after so many admissions of one task it is `expired` for good


class AttemptState(StrEnum):
    """The last durable step that an attempt has reached."""

    CREATED = "created"
    PARKED = "parked"
    SEALED = "sealed"
    LOGGED = "logged"
    SIGNED = "signed"
    ISSUED = "issued"
    DONE = "done"
    CLOSED = "closed"

    @property
    def open(self) -> bool:
        """Whether something is still to be done for this attempt."""
        return self not in {AttemptState.DONE, AttemptState.CLOSED}


ATTEMPT_ORDER = (
    AttemptState.CREATED,
    AttemptState.SEALED,
    AttemptState.LOGGED,
    AttemptState.SIGNED,
    AttemptState.ISSUED,
    AttemptState.DONE,
)

_FINAL = frozenset(state for state in TaskState if state.final)

TASK_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.ADMITTING: _FINAL | {TaskState.RUNNING, TaskState.WAITING_REVIEW},
    TaskState.WAITING_REVIEW: _FINAL | {TaskState.ADMITTING},
    TaskState.RUNNING: _FINAL | {TaskState.ADMITTING},  # back: a new attempt
    **dict.fromkeys(_FINAL, frozenset()),
}

ATTEMPT_TRANSITIONS: dict[AttemptState, frozenset[AttemptState]] = {
    state: frozenset({following, AttemptState.CLOSED})
    for state, following in itertools.pairwise(ATTEMPT_ORDER)
} | {AttemptState.DONE: frozenset(), AttemptState.CLOSED: frozenset()}
ATTEMPT_TRANSITIONS[AttemptState.CREATED] |= {AttemptState.PARKED}
ATTEMPT_TRANSITIONS[AttemptState.PARKED] = frozenset(
    {AttemptState.CREATED, AttemptState.CLOSED}
)


def advance_task(current: TaskState, target: TaskState) -> TaskState:
    """Return `target`, or raise ``STO-R034`` when the table has no such step."""
    if target not in TASK_TRANSITIONS[current]:
        raise InternalError("STO-R034", f"a task cannot go from {current} to {target}")
    return target


def advance_attempt(current: AttemptState, target: AttemptState) -> AttemptState:
    """Return `target`, or raise ``STO-R034`` when the table has no such step."""
    if target not in ATTEMPT_TRANSITIONS[current]:
        raise InternalError(
            "STO-R034", f"an attempt cannot go from {current} to {target}"
        )
    return target


def needs_new_attempt(*, now: int, delay_bound_s: int, not_after: int) -> bool:
    """Whether a result issued at `now` (s) would outlive its admission (design §1.4)."""
    return now + delay_bound_s > not_after
