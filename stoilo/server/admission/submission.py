"""From a request to a durable task: permission, quota, gate, one row (design §1.2).

An answer means that the task survives kill -9 of anything (I6). Requests are grouped:
those that arrive while a transaction runs share the next one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from stoilo.core.codebook import load_codebook
from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, StoiloError, TrustError, UsageError
from stoilo.core.fairqueue import Shares
from stoilo.core.types import Finding, Severity, TaskState, Verdict
from stoilo.policies.policy import check_access
from stoilo.server.admission import tokens
from stoilo.server.admission.blobs import granted_blobs
from stoilo.server.admission.draft import (
    Draft,
    check_form,
    is_key,
    is_light,
    limits_in_force,
    parse_draft,
)
from stoilo.server.admission.fairness import FairTurns, in_thread
from stoilo.server.admission.gatekeeper import Gatekeeper, GateRefusal
from stoilo.server.admission.quotas import RateMeter, RefusalRoom, check_open_tasks
from stoilo.server.admission.value_facts import LIGHT, TOO_LARGE, find_facts
from stoilo.server.db import rows
from stoilo.server.db.batcher import Batcher
from stoilo.server.db.bulk import draw_tokens
from stoilo.server.db.records import Owner, TaskRow, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.core.rpc import tasks_pb2 as pb
    from stoilo.policies.policy import Policy
    from stoilo.server.admission.draft import FlavorLookup, LevelLookup
    from stoilo.server.db.store import Store
    from stoilo.server.log.refusals import RefusalBook


_TASK_ID_BYTES = 16
READING = Shares(slots=2, busy_above=0.5, half_life_s=30.0)
"""Of threads that read large values; the unit is s."""
MOST_CODES = 64
"""Of the gate's findings, in a workunit's public record."""


@dataclass(frozen=True, slots=True)
class Admissible:
    """A request that passed everything before the gate.

    Attributes:
        owner: who asks.
        draft: what for.
        existing: the task that this key already made, None for a new one.
        blob_types: library types in the blobs that the draft names.
    """

    owner: Owner
    draft: Draft
    existing: TaskRow | None
    blob_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request; `draft` once it has been read by itself."""

    token: str
    request: pb.CreateTaskRequest
    draft: Draft | None = None


@dataclass(frozen=True, slots=True)
class _Heavy:
    """Stands for an owner's request that has to be read by itself."""

    owner: Owner


@dataclass(frozen=True, slots=True)
class _NewTask:
    owner: Owner
    draft: Draft
    spec: TaskSpec


class Submissions:
    """CreateTask without gRPC.

    Args:
        store: where tasks live.
        gatekeeper: judges the source.
        refusals: remembers who was refused, for the log.
        policy: who may use which level, and how much.
        levels: level by name.
        flavors: flavor id by (wish, level).
        clock: seconds since 1970.
        stored: called after tasks became durable (wakes the pipeline).
        turns: at reading what takes long, shared with whoever else reads.
    """

    def __init__(
        self,
        store: Store,
        gatekeeper: Gatekeeper,
        refusals: RefusalBook,
        policy: Policy,
        *,
        levels: LevelLookup,
        flavors: FlavorLookup,
        clock: Callable[[], int],
        stored: Callable[[], None],
        turns: FairTurns | None = None,
    ) -> None:
        self._store = store
        self._gatekeeper = gatekeeper
        self._refusals = refusals
        self._policy = policy
        self._levels = levels
        self._flavors = flavors
        self._clock = clock
        self._stored = stored
        self._meter = RateMeter("STO-R005", "submissions")
        self._refused = RateMeter("STO-R007", "refused submissions")
        self._refusing = RefusalRoom(self._refused)
        self._reading = turns or FairTurns(READING)
        self._looking: Batcher[_Incoming, Admissible | _Heavy] = Batcher(self._look)
        self._storing: Batcher[_NewTask, TaskRow] = Batcher(self._insert)

    async def create(self, token: str, request: pb.CreateTaskRequest) -> TaskRow:
        """Return the stored task for an untrusted request.

        Raises:
            DeniedError, PolicyRefusal, UsageError, TrustError, InternalError: by code.
        """
        found = await self._find(token, request)
        if found.existing is not None:
            # Before the gate: a client that repeats itself costs no jail.
            return found.existing
        account_id = found.owner.account_id
        most = self._policy.quota(found.owner.role).refusals_per_hour
        # No more at once than the account may still have refused: else a burst would pass
        # its limit before the first of them is counted.
        async with self._refusing.one(account_id, most) as count_refusal:
            verdict = await self._gatekeeper.judge(
                found.draft.review(self._policy, found.blob_types), account_id
            )
            if not verdict.admitted:
                count_refusal()
        if not verdict.admitted:
            refusal = GateRefusal(verdict)
            codes = _known_codes(refusal.findings, Severity.ERROR)
            # The log tells of refusals in batches, and under a commitment: it must not become
            # a way to publish text, nor to learn who tries what.
            await self._refusals.note(
                found.owner.account_id,
                found.draft.digest,
                codes[0] if codes else refusal.code,
            )
            raise refusal
        # The gate chose the level, so only now it is known whether this caller may use it.
        check_access(self._policy, verdict.level, found.owner.name, (found.owner.role,))
        spec = self._spec(found.draft, verdict)
        return await self._storing.submit(_NewTask(found.owner, found.draft, spec))

    async def _find(self, token: str, request: pb.CreateTaskRequest) -> Admissible:
        """Return what is known of an untrusted request, heavy ones read by themselves."""
        found = await self._looking.submit(_Incoming(token, request))
        while isinstance(found, _Heavy):  # once: then it has its draft
            draft = await self._read(found.owner, request)
            found = await self._looking.submit(_Incoming(token, request, draft))
        return found

    async def _read(self, owner: Owner, request: pb.CreateTaskRequest) -> Draft:
        """Read a heavy request when its account has its turn; a refusal is counted."""
        account_id = owner.account_id
        most = self._policy.quota(owner.role).refusals_per_hour
        async with (
            self._refusing.one(account_id, most) as count_refusal,
            self._reading.one(account_id),
        ):
            try:
                return await in_thread(partial(parse_draft, request))
            except TrustError:
                count_refusal()
                raise

    def check_early(self, owner: Owner) -> None:
        """Raise what `create` would, as far as it shows before there is a request.

        Raises:
            DeniedError: ``STO-R002``.
            PolicyRefusal: ``STO-R005``, ``STO-R007``.
        """
        tokens.check_permission(owner, "CreateTask")
        quota = self._policy.quota(owner.role)
        self._meter.check(owner.account_id, quota.tasks_per_hour, cost=0)
        self._refused.check(owner.account_id, quota.refusals_per_hour, cost=0)

    def _look(
        self, batch: Sequence[_Incoming]
    ) -> list[Admissible | _Heavy | Exception]:
        """Answer a batch in one read transaction: permission and quota first."""
        answers: list[Admissible | _Heavy | Exception] = []
        with self._store.read() as connection:
            known = _Known(connection, batch, self._clock())
            for incoming in batch:
                try:
                    answers.append(self._look_at(known, incoming))
                except StoiloError as error:
                    answers.append(error)
        return answers

    def _look_at(self, known: _Known, incoming: _Incoming) -> Admissible | _Heavy:
        owner = known.owner(incoming.token)
        tokens.check_permission(owner, "CreateTask")
        quota = self._policy.quota(owner.role)
        draft = incoming.draft
        if draft is None:
            # Counted before the request is read: reading is what a flood would cost us.
            self._meter.check(owner.account_id, quota.tasks_per_hour)
            self._refused.check(owner.account_id, quota.refusals_per_hour, cost=0)
            check_form(incoming.request)
            draft = _read_light(incoming.request)
        if draft is None:
            # A repetition may be answered although the account is full.
            if known.task(owner, incoming.request.idempotency_key) is None:
                check_open_tasks(known.open_tasks(owner), quota)
            return _Heavy(owner)
        existing = known.task(owner, draft.key)
        if existing is not None:
            _check_same(existing, draft)
            return Admissible(owner, draft, existing)
        check_open_tasks(known.open_tasks(owner), quota)
        types = _check_blobs(known.connection, owner, draft) if draft.blobs else ()
        return Admissible(owner, draft, None, types)

    def _spec(self, draft: Draft, verdict: Verdict) -> TaskSpec:
        level = self._levels(verdict.level)
        return TaskSpec(
            task_module=content_digest(draft.task_module),
            entry=draft.entry,
            validator_module=content_digest(draft.validator_module),
            init_entry=draft.init_entry,
            compare_entry=draft.compare_entry,
            arguments=content_digest(draft.arguments),
            blobs=draft.blobs,
            level=verdict.level,
            policy_digest=verdict.policy_digest,
            source_digest=verdict.source_digest,
            flavor=self._flavors(draft.flavor, verdict.level),
            redundancy=draft.redundancy,
            limits=limits_in_force(draft.requested_limits, level),
            label=draft.label,
            publish_source=draft.publish_source,
            map_items=draft.map_items,
            topics=draft.topics,
            codes=tuple(sorted(set(_known_codes(verdict.findings)))[:MOST_CODES]),
        )

    def _insert(self, batch: Sequence[_NewTask]) -> list[TaskRow | Exception]:
        """Store a batch in one durable transaction; the first of equal keys wins."""
        now = self._clock()
        with self._store.write() as connection:
            plan = _Plan(connection, self._policy, batch, now)
            answers = [plan.place(item) for item in batch]
            plan.store()
            # Verdicts become durable with the tasks that stand on them, in one flush.
            self._gatekeeper.save_new(connection)
        self._stored()
        return answers


class _Known:
    """What the database knows about a batch of requests, each asked once."""

    def __init__(
        self, connection: Connection, batch: Sequence[_Incoming], now: int
    ) -> None:
        self.connection = connection
        self._now = now
        self._keys = [
            key for key in {one.request.idempotency_key for one in batch} if is_key(key)
        ]
        self._owners: dict[str, Owner] = {}
        self._tasks: dict[int, dict[str, TaskRow]] = {}
        self._open: dict[int, int] = {}

    def owner(self, token: str) -> Owner:
        """Return who holds `token`, or raise ``STO-R001``."""
        if token not in self._owners:
            self._owners[token] = tokens.find_owner(self.connection, token, self._now)
        return self._owners[token]

    def task(self, owner: Owner, key: str) -> TaskRow | None:
        """Return the owner's task with this key."""
        account_id = owner.account_id
        if account_id not in self._tasks:
            self._tasks[account_id] = rows.find_by_key(
                self.connection, account_id, self._keys
            )
        return self._tasks[account_id].get(key)

    def open_tasks(self, owner: Owner) -> int:
        """Return how many tasks of the owner are not final."""
        account_id = owner.account_id
        if account_id not in self._open:
            self._open[account_id] = rows.count_open(self.connection, account_id)
        return self._open[account_id]


class _Plan:
    """Decides, inside the transaction, which of a batch are new."""

    def __init__(
        self,
        connection: Connection,
        policy: Policy,
        batch: Sequence[_NewTask],
        now: int,
    ) -> None:
        self._connection = connection
        self._policy = policy
        self._now = now
        self._added: Counter[int] = Counter()
        self._tasks: list[TaskRow] = []
        self._keys: list[str] = []
        self._contents: dict[str, bytes] = {}
        self._names = iter(draw_tokens(len(batch), _TASK_ID_BYTES))
        keys: dict[int, list[str]] = {}
        for item in batch:
            keys.setdefault(item.owner.account_id, []).append(item.draft.key)
        self._known = {
            (account_id, key): row
            for account_id, wanted in keys.items()
            for key, row in rows.find_by_key(connection, account_id, wanted).items()
        }
        self._open = {
            account_id: rows.count_open(connection, account_id) for account_id in keys
        }

    def place(self, item: _NewTask) -> TaskRow | Exception:
        """Return the task that answers `item`, or the error."""
        account_id = item.owner.account_id
        known = self._known.get((account_id, item.draft.key))
        try:
            if known is not None:
                _check_same(known, item.draft)
                return known
            quota = self._policy.quota(item.owner.role)
            # Again, now under the writer's lock: many batches may have looked at once.
            check_open_tasks(self._open[account_id] + self._added[account_id], quota)
        except StoiloError as error:
            return error
        return self._add(item)

    def _add(self, item: _NewTask) -> TaskRow:
        draft = item.draft
        row = TaskRow(
            task_id=next(self._names),
            account_id=item.owner.account_id,
            request_digest=draft.digest,
            state=TaskState.ADMITTING,
            attempt=1,
            spec=item.spec,
            created_at=self._now,
        )
        self._tasks.append(row)
        self._keys.append(draft.key)
        self._added[row.account_id] += 1
        # So that an equal key later in this batch finds the first one's task.
        self._known[row.account_id, draft.key] = row
        self._contents[item.spec.task_module] = draft.task_module
        self._contents[item.spec.validator_module] = draft.validator_module
        self._contents[item.spec.arguments] = draft.arguments
        return row

    def store(self) -> None:
        """Write what is new."""
        if self._tasks:
            rows.add_contents(self._connection, self._contents)
            rows.add_task(self._connection, self._tasks, self._keys)


def _known_codes(
    findings: Sequence[Finding], severity: Severity | None = None
) -> list[str]:
    """Return the findings' codes in order, without any that the codebook lacks."""
    return [
        one.code
        for one in findings
        if severity in {None, one.severity} and one.code in load_codebook()
    ]


def _read_light(request: pb.CreateTaskRequest) -> Draft | None:
    """Return the draft of an untrusted request, None for one that takes long to read."""
    if not is_light(request):
        return None
    try:
        return parse_draft(request, lambda data: find_facts(data, LIGHT))
    except TrustError as error:
        if error.code != TOO_LARGE:
            raise
        return None


def _check_same(task: TaskRow, draft: Draft) -> None:
    if task.request_digest != draft.digest:
        raise UsageError(
            "STO-R011",
            "this idempotency key already names another task of yours",
            hint="use a fresh key for a changed request",
        )


def _check_blobs(connection: Connection, owner: Owner, draft: Draft) -> tuple[str, ...]:
    """Return the types in the blobs, or raise ``STO-R012`` for one not granted."""
    # "Not yours" and "not there" sound alike, or digests of others' data could be tried.
    granted = granted_blobs(connection, owner.account_id, draft.blobs)
    for digest in draft.blobs:
        if digest not in granted:
            raise DeniedError(
                "STO-R012",
                f"blob {digest[:12]}… is not yours to name",
                hint="upload it first, then submit",
            )
    return tuple({name for types in granted.values() for name in types})
