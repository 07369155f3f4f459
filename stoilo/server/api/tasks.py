"""An owner's view of his tasks: where they are, why they wait, what he makes of them."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

import msgspec

from stoilo.audit.format.records import salted_commitment
from stoilo.core.errors import DeniedError, UsageError, show_plainly
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import BOUNDS, TaskState
from stoilo.server.admission.issuing import find_hold
from stoilo.server.admission.quotas import RateMeter, find_budgets, find_shares
from stoilo.server.api.waiting import MOST_TASKS, select_tasks
from stoilo.server.db import rows, schema
from stoilo.server.db.records import AttemptState, Outcome, workunit_name
from stoilo.server.engines.interface import HostRecords
from stoilo.server.log.public_records import finish_task, make_case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from stoilo.audit.read.case import Case
    from stoilo.policies.policy import Policy
    from stoilo.server.db.records import AttemptRow, Owner, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import Engine, WorkunitStatus


LOGGER = logging.getLogger(__name__)
NEEDS_REVIEW = "STO-R022"
REJECTIONS_PER_HOUR = 1000
"""Results, so that one researcher's word does not end the record of many hosts."""
REASON_CHARS = 200
WAITS_S = 5  # from then on a task's explanation says how its account stands, s
MOST_LISTED = 1000  # tasks of one answer
MOST_SOUGHT = 10_000  # among which a label is looked for

STEP_TEXT = {
    AttemptState.CREATED: "waits for its admission statement",
    AttemptState.PARKED: f"waits for a reviewer's signature [{NEEDS_REVIEW}]",
    AttemptState.SEALED: "waits for its leaf in the audit log",
    AttemptState.LOGGED: "waits for a published checkpoint and the signer",
    AttemptState.SIGNED: "waits for its workunit",
    AttemptState.ISSUED: "waits for volunteers",
    AttemptState.DONE: "is being finished",
    AttemptState.CLOSED: "waits for a new attempt",
}


@dataclass(frozen=True, slots=True)
class Submitted:
    """A task as its owner gave it, and what it is made of by digest."""

    task: TaskRow
    contents: Mapping[str, bytes]

    _AGAIN: ClassVar = ("entry", "init_entry", "compare_entry", "blobs", "level", "label",
                        "publish_source", "topics", "map_items")  # fmt: skip

    def request(self, key: str) -> pb.CreateTaskRequest:
        """Return the request for the same once more; today's release chooses the flavor.

        Raises ``STO-L145`` when a retention command has deleted what it was made of.
        """
        spec = self.task.spec
        if {spec.task_module, spec.validator_module, spec.arguments} - {*self.contents}:
            raise UsageError("STO-L145", "source or arguments have been deleted since")
        options = pb.RedundancyOptions(**asdict(spec.redundancy))
        return pb.CreateTaskRequest(
            idempotency_key=key,
            task_module=self.contents[spec.task_module],
            validator_module=self.contents[spec.validator_module],
            arguments=self.contents[spec.arguments],
            redundancy=options,
            limits=pb.RunLimits(**asdict(spec.limits)),
            **{name: getattr(spec, name) for name in self._AGAIN},
        )


class TaskDesk:
    """PollTask, ListTasks, CancelTask and RejectResult without gRPC; blocking, thread-safe."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        clock: Callable[[], int],
        trouble: Callable[[], str],
        wake: Callable[[], None],
        policy: Policy,
    ) -> None:
        self._policy = policy
        self._standings: dict[int, tuple[int, str]] = {}
        self._store = store
        self._engine = engine
        self._clock = clock
        self._trouble = trouble
        self._wake = wake
        self._rejections = RateMeter("STO-T027", "rejected results")

    def poll(self, owner: Owner, task_id: str) -> pb.PollTaskResponse:
        """Return the state of the owner's task; raises ``STO-R003``, ``STO-L145``."""
        with self._store.read() as connection:
            task = _owned(connection, owner, task_id)
            attempt = rows.find_attempt(connection, task_id, task.attempt)
            outcome = rows.find_outcome(connection, task_id)
            held = find_hold(connection, task_id, task.attempt)
        status = None
        if attempt is not None and attempt.envelope is not None:
            status = self._engine.status(attempt.workunit)
        response = pb.PollTaskResponse(
            task_id=task_id,
            state=task.state.value,
            level=task.spec.level,
            created_at=task.created_at,
            attempt=task.attempt,
            retry_after_ms=self._advice(task),
        )
        if attempt is not None and attempt.log_index is not None:
            response.logged, response.log_index = True, attempt.log_index
        if outcome is not None:
            _check_kept(outcome)
            _fill_outcome(response, outcome)
        elif attempt is not None:
            response.explanation = self._explain(attempt, status, held)
            if self._clock() - task.created_at >= WAITS_S:
                response.explanation += "; " + self._standing(owner)
            if task.state is TaskState.WAITING_REVIEW:
                response.code = NEEDS_REVIEW
        if status is not None:
            _fill_copies(response, status)
        return response

    def owned(self, owner: Owner, task_ids: Sequence[str]) -> frozenset[str]:
        """Return those that are the owner's; raises ``STO-R010`` for too many."""
        if not 1 <= len(task_ids) <= MOST_TASKS:
            raise UsageError("STO-R010", f"a call waits for 1 to {MOST_TASKS} tasks")
        with self._store.read() as connection:
            rule = schema.task.c.account_id == owner.account_id
            return select_tasks(connection, task_ids, rule)

    def list_tasks(
        self, owner: Owner, asked: pb.ListTasksRequest
    ) -> pb.ListTasksResponse:
        """Return the owner's tasks, newest first; raises ``STO-R010`` for an odd request."""
        if (
            not set(asked.states) <= set(TaskState)
            or len(asked.label) > BOUNDS.name_chars
        ):
            raise UsageError(
                "STO-R010",
                "a list is asked for by states and a label",
                hint=f"states are {', '.join(TaskState)}",
            )
        limit = min(asked.limit or MOST_LISTED, MOST_LISTED)
        most = MOST_SOUGHT if asked.label else limit  # labels are in no column
        with self._store.read() as connection:
            found = rows.list_tasks(connection, owner.account_id, asked.states, most)
        chosen = [one for one in found if asked.label in {"", one.spec.label}][:limit]
        return pb.ListTasksResponse(tasks=map(_listed, chosen))

    def read(self, owner: Owner, task_id: str) -> Submitted:
        """Return what the owner submitted, as far as it is kept; raises ``STO-R003``."""
        with self._store.read() as connection:
            task = _owned(connection, owner, task_id)
            spec = task.spec
            names = {spec.task_module, spec.validator_module, spec.arguments}
            return Submitted(task, rows.load_contents(connection, names))

    def read_case(self, owner: Owner, task_id: str) -> Case:
        """Return what opens the log's entries of his task; ``STO-R003``, ``STO-L023``."""
        with self._store.read() as connection:
            return make_case(connection, _owned(connection, owner, task_id))

    def find_hosts(self, owner: Owner, task_id: str) -> dict[str, str]:
        """Return who has the owner's copies, by their names: pseudonyms that he alone gets.

        Raises ``STO-R003``.
        """
        with self._store.read() as connection:
            task = _owned(connection, owner, task_id)
        status = self._engine.status(workunit_name(task_id, task.attempt))
        return {
            one.name: salted_commitment(owner.salt, "host", str(one.host))[:8]
            for one in (status.results if status else ())
            if one.host
        }

    def cancel(self, owner: Owner, task_id: str) -> TaskState:
        """Cancel the owner's task unless it is final; returns the state it has then."""
        now = self._clock()
        with self._store.write() as connection:
            task = _owned(connection, owner, task_id)
            outcome = Outcome(
                TaskState.CANCELLED,
                task.attempt,
                error_text="cancelled by its owner",
                code="STO-R062",
            )
            done = finish_task(connection, task, outcome, now)
        self._wake()  # the pipeline cancels the workunit, also after a crash
        return TaskState.CANCELLED if done else task.state

    def reject(self, owner: Owner, task_id: str, reason: str) -> int:
        """Let the owner say that his task's value cannot be used; mark its hosts.

        Returns how many results were counted against their hosts: 0 where the task has not
        succeeded, was rejected before or long ago, or the engine keeps no records.

        Raises:
            DeniedError: ``STO-R003``.
            PolicyRefusal: ``STO-T027`` when he says so too often.
        """
        with self._store.read() as connection:
            task = _owned(connection, owner, task_id)
            attempt = rows.find_attempt(connection, task_id, task.attempt)
        self._rejections.check(owner.account_id, REJECTIONS_PER_HOUR)
        engine = self._engine
        if attempt is None or task.state is not TaskState.SUCCEEDED:
            return 0
        count = 0
        if isinstance(engine, HostRecords):
            count = engine.reject(attempt.workunit, self._find_owners)
        self._rejections.charge(owner.account_id, max(0, count - 1))
        said = show_plainly(reason[:REASON_CHARS])
        LOGGER.warning(
            "account %d rejects task %s: %s", owner.account_id, task_id, said
        )
        return count

    def _find_owners(self, workunits: Sequence[str]) -> Mapping[str, int]:
        """Return the account that each workunit's task belongs to, if it is known."""
        with self._store.read() as connection:
            tasks = {
                name: rows.find_task(connection, name.rpartition("_")[0])
                for name in workunits
            }
        return {name: task.account_id for name, task in tasks.items() if task}

    def _standing(self, owner: Owner) -> str:
        """Return what an account has of what it and its group may, and its share.

        Read again after a few seconds: who waits asks often.
        """
        now = self._clock()
        until, text = self._standings.get(owner.account_id, (0, ""))
        if until > now:
            return text
        with self._store.read() as connection:
            quota = self._policy.quota(owner.role)
            said = [
                str(one)
                for one in find_budgets(connection, owner.account_id, quota, now)
            ]
            waiting = find_shares(connection)
        own = waiting.get(owner.account_id)
        if own is not None and (every := {*waiting.values()}) != {own}:
            whose = own.name if own.name.startswith("group") else "your account"
            total = sum(one.weight for one in every)
            share = f"{own.weight} of {total} shares"
            said.append(f"while volunteers are short {whose} has {share}")
        if len(self._standings) >= MOST_LISTED:
            self._standings.clear()
        self._standings[owner.account_id] = now + WAITS_S, "; ".join(said)
        return "; ".join(said)

    def _advice(self, task: TaskRow) -> int:
        """Return when to poll again, ms: soon for young tasks, later for old ones."""
        if task.state.final:
            return 0
        age_s = max(0, self._clock() - task.created_at)
        return min(10_000, 50 + 50 * age_s)

    def _explain(
        self, attempt: AttemptRow, status: WorkunitStatus | None, held: str
    ) -> str:
        state = AttemptState(attempt.state)
        if state is AttemptState.ISSUED and status is not None and status.explanation:
            return status.explanation
        trouble = self._trouble() if state is not AttemptState.ISSUED else ""
        trouble = held or trouble
        return STEP_TEXT[state] + (f" ({trouble})" if trouble else "")


def _owned(connection: Connection, owner: Owner, task_id: str) -> TaskRow:
    """Return the owner's task; what is not his does not exist for him (design §3)."""
    task = rows.find_task(connection, task_id[:64])
    if task is None or task.account_id != owner.account_id:
        raise DeniedError(
            "STO-R003",
            "no such task",
            hint="check the id and the account it was submitted from",
        )
    return task


def _listed(task: TaskRow) -> pb.ListedTask:
    return pb.ListedTask(
        task_id=task.task_id,
        state=task.state.value,
        level=task.spec.level,
        label=task.spec.label,
        map_items=task.spec.map_items,
        created_at=task.created_at,
        finished_at=task.finished_at or 0,
    )


def _check_kept(outcome: Outcome) -> None:
    """Raise ``STO-L145`` for a value that a retention command has deleted."""
    kept = outcome.value is not None or outcome.value_blob or outcome.items
    if outcome.state is TaskState.SUCCEEDED and not kept:
        raise UsageError(
            "STO-L145",
            "the task succeeded, but its result has been deleted since",
            hint="submit it again if you need the value",
        )


def _fill_outcome(response: pb.PollTaskResponse, outcome: Outcome) -> None:
    if outcome.value is not None:
        response.value = outcome.value
    for name in ("value_blob", "error_type", "error_text", "code", "output"):
        setattr(response, name, getattr(outcome, name))
    for item in outcome.items:  # its fields have the wire's names
        response.items.add(**msgspec.structs.asdict(item))


def _fill_copies(response: pb.PollTaskResponse, status: WorkunitStatus) -> None:
    for result in status.results:
        response.copies.add(
            name=result.name,
            state=result.state.value,
            outcome=result.outcome.value,
            code=result.code,
            sent_at=result.sent_at,
            received_at=result.received_at,
            cpu_s=result.cpu_s,
            fraction_done=result.fraction_done,
        )
