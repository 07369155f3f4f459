"""From a request to a durable task: permission, quota, gate, one row (design §1.2).

An answer means that the task survives kill -9 of anything (I6). Requests are grouped:
those that arrive while a transaction runs share the next one.
"""

from __future__ import annotations

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
from stoilo.server.admission.quotas import Budget, RateMeter, RefusalRoom, find_budgets
from stoilo.server.admission.value_facts import LIGHT, TOO_LARGE, find_facts
from stoilo.server.db import rows
from stoilo.server.db.batcher import Batcher
from stoilo.server.db.bulk import draw_tokens
from stoilo.server.db.records import Owner, TaskRow, TaskSpec
from stoilo.server.release.flavors import check_validators

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.core.rpc import tasks_pb2 as pb
    from stoilo.policies.policy import Policy, Quota
    from stoilo.server.admission.draft import FlavorLookup, LevelLookup
    from stoilo.server.db.store import Store
    from stoilo.server.log.refusals import RefusalBook


_TASK_ID_BYTES = 16
READING = Shares(slots=2, busy_above=0.5, half_life_s=30.0)
"""Of threads that read large values; the unit is s."""
MOST_CODES = 64  # of the gate's findings, in a workunit's public record


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request; `draft` once it has been read by itself."""

    token: str
    request: pb.CreateTaskRequest
    draft: Draft | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A request that passed everything before the gate."""

    owner: Owner  # who asks
    draft: Draft | None  # what for; None for what has to be read by itself first
    existing: TaskRow | None = None  # the task that this key already made
    blob_types: tuple[str, ...] = ()  # library types in the blobs that the draft names


@dataclass(frozen=True, slots=True)
class _NewTask:
    owner: Owner
    draft: Draft
    spec: TaskSpec


class Submissions:
    """CreateTask without gRPC."""

    def __init__(
        self,
        store: Store,  # where tasks live
        gatekeeper: Gatekeeper,  # judges the source
        refusals: RefusalBook,  # remembers who was refused, for the log
        policy: Policy,  # who may use which level, and how much
        *,
        levels: LevelLookup,  # level by name
        flavors: FlavorLookup,  # flavor id by (wish, level, libraries)
        clock: Callable[[], int],  # seconds since 1970
        # called after tasks became durable (wakes the pipeline)
        stored: Callable[[], None],
        # at reading what takes long, shared with whoever else reads
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
        fewer = "wait, or send many small calls as one with conn.map"
        self._meter = RateMeter("STO-R005", "submissions", hint=fewer)
        self._refused = RateMeter("STO-R007", "refused submissions")
        self._refusing = RefusalRoom(self._refused)
        self._reading = turns or FairTurns(READING)
        self._looking: Batcher[_Incoming, _Found] = Batcher(self._look)
        self._storing: Batcher[_NewTask, TaskRow] = Batcher(self._insert)

    async def create(self, token: str, request: pb.CreateTaskRequest) -> TaskRow:
        """Return the stored task for an untrusted request.

        Raises:
            DeniedError, PolicyRefusal, UsageError, TrustError, InternalError: by code.
        """
        found = await self._looking.submit(_Incoming(token, request))
        draft = found.draft
        if draft is None:
            draft = await self._read(found.owner, request)
            found = await self._looking.submit(_Incoming(token, request, draft))
        if found.existing is not None:
            # Before the gate: a client that repeats itself costs no jail.
            return found.existing
        account_id = found.owner.account_id
        most = self._policy.quota(found.owner.role).refusals_per_hour
        # No more at once than the account may still have refused: else a burst would pass
        # its limit before the first of them is counted.
        async with self._refusing.one(account_id, most) as count_refusal:
            verdict = await self._gatekeeper.judge(
                draft.review(self._policy, found.blob_types, self._gatekeeper.held()),
                account_id,
            )
            if not verdict.admitted:
                count_refusal()
        if not verdict.admitted:
            refusal = GateRefusal(verdict)
            codes = _known_codes(refusal.findings, Severity.ERROR)
            # The log tells of refusals in batches, and under a commitment: it must not become
            # a way to publish text, nor to learn who tries what.
            await self._refusals.note(
                account_id,
                draft.digest,
                codes[0] if codes else refusal.code,
            )
            raise refusal
        # The gate chose the level, so only now it is known whether this caller may use it.
        check_access(self._policy, verdict.level, found.owner.name, (found.owner.role,))
        spec = self._spec(draft, verdict)
        return await self._storing.submit(_NewTask(found.owner, draft, spec))

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

    def _look(self, batch: Sequence[_Incoming]) -> list[_Found | Exception]:
        """Answer a batch in one read transaction: permission and quota first."""
        answers: list[_Found | Exception] = []
        with self._store.read() as connection:
            keys = {one.request.idempotency_key for one in batch}
            known = _Known(connection, [key for key in keys if is_key(key)])
            for incoming in batch:
                try:
                    answers.append(self._look_at(known, incoming))
                except StoiloError as error:
                    answers.append(error)
        return answers

    def _look_at(self, known: _Known, incoming: _Incoming) -> _Found:
        owner = known.owner(incoming.token, self._clock())
        tokens.check_permission(owner, "CreateTask")
        quota = self._policy.quota(owner.role)
        draft = incoming.draft
        if draft is None:
            # Counted before the request is read: reading is what a flood would cost us.
            self._meter.check(owner.account_id, quota.tasks_per_hour)
            self._refused.check(owner.account_id, quota.refusals_per_hour, cost=0)
            check_form(incoming.request)
            draft = _read_light(incoming.request)
        existing = known.task(owner.account_id, incoming.request.idempotency_key)
        # A repetition may be answered although the account is full.
        if existing is None:
            known.check_room(owner.account_id, quota, self._clock())
        if draft is None:
            return _Found(owner, None)
        if existing is not None:
            _check_same(existing, draft)
            return _Found(owner, draft, existing)
        types = (
            _check_blobs(known.connection, owner, draft) if draft.request.blobs else ()
        )
        return _Found(owner, draft, None, types)

    def _spec(self, draft: Draft, verdict: Verdict) -> TaskSpec:
        asked, level = draft.request, self._levels(verdict.level)
        check_validators(asked.validator_module, verdict.libraries)
        return TaskSpec(
            task_module=content_digest(asked.task_module),
            entry=asked.entry,
            validator_module=content_digest(asked.validator_module),
            init_entry=asked.init_entry,
            compare_entry=asked.compare_entry,
            arguments=content_digest(asked.arguments),
            blobs=tuple(asked.blobs),
            level=verdict.level,
            policy_digest=verdict.policy_digest,
            source_digest=verdict.source_digest,
            flavor=self._flavors(asked.flavor, verdict.level, verdict.libraries),
            redundancy=draft.redundancy,
            limits=limits_in_force(asked.limits, level),
            label=asked.label,
            publish_source=asked.publish_source,
            map_items=asked.map_items,
            topics=tuple(sorted(set(asked.topics))),
            codes=tuple(sorted(set(_known_codes(verdict.findings)))[:MOST_CODES]),
            libraries=verdict.libraries,
        )

    def _insert(self, batch: Sequence[_NewTask]) -> list[TaskRow | Exception]:
        """Store a batch in one durable transaction; the first of equal keys wins."""
        answers: list[TaskRow | Exception] = []
        added: list[tuple[TaskRow, Draft]] = []
        names = iter(draw_tokens(len(batch), _TASK_ID_BYTES))
        with self._store.write() as connection:
            known = _Known(connection, [item.draft.key for item in batch])
            for item in batch:
                try:
                    row = self._place(known, item, next(names))
                except StoiloError as error:
                    answers.append(error)
                    continue
                answers.append(row)
                if known.add(row, item.draft.key):
                    added.append((row, item.draft))
            if added:
                _store(connection, added)
            # Verdicts become durable with the tasks that stand on them, in one flush.
            self._gatekeeper.save_new(connection)
        self._stored()
        return answers

    def _place(self, known: _Known, item: _NewTask, name: str) -> TaskRow:
        """Return the task that answers `item`, called `name` if it is new."""
        owner, draft = item.owner, item.draft
        existing = known.task(owner.account_id, draft.key)
        if existing is not None:
            _check_same(existing, draft)
            return existing
        # Again, now under the writer's lock: many batches may have looked at once.
        quota = self._policy.quota(owner.role)
        known.check_room(owner.account_id, quota, self._clock())
        return TaskRow(
            task_id=name,
            account_id=owner.account_id,
            request_digest=draft.digest,
            state=TaskState.ADMITTING,
            attempt=1,
            spec=item.spec,
            created_at=self._clock(),
        )


class _Known:
    """What the database knows about a batch of requests, each asked once."""

    def __init__(self, connection: Connection, keys: Sequence[str]) -> None:
        self.connection = connection
        self._keys = keys
        self._owners: dict[str, Owner] = {}
        self._tasks: dict[int, dict[str, TaskRow]] = {}
        self._budgets: dict[int, list[Budget]] = {}
        self._shared: dict[tuple[str, str], Budget] = {}

    def owner(self, token: str, now: int) -> Owner:
        """Return who holds `token`, or raise ``STO-R001``."""
        if token not in self._owners:
            self._owners[token] = tokens.find_owner(self.connection, token, now)
        return self._owners[token]

    def task(self, account_id: int, key: str) -> TaskRow | None:
        """Return the account's task with this key."""
        if account_id not in self._tasks:
            self._tasks[account_id] = rows.find_by_key(
                self.connection, account_id, self._keys
            )
        return self._tasks[account_id].get(key)

    def check_room(self, account_id: int, quota: Quota, now: int) -> None:
        """Raise ``STO-R004``, ``STO-R005`` when one more task would be too many."""
        if account_id not in self._budgets:
            found = find_budgets(self.connection, account_id, quota, now)
            # a group's is one for all its accounts of the batch
            self._budgets[account_id] = [
                self._shared.setdefault((one.whose, one.code), one)
                if one.whose
                else one
                for one in found
            ]
        for budget in self._budgets[account_id]:
            budget.check()

    def add(self, row: TaskRow, key: str) -> bool:
        """Know one more task: an equal key later in the batch finds it; False if known."""
        if self._tasks[row.account_id].get(key) is row:
            return False
        self._tasks[row.account_id][key] = row
        for budget in self._budgets[row.account_id]:
            budget.used += 1
        return True


def _store(connection: Connection, added: Sequence[tuple[TaskRow, Draft]]) -> None:
    """Write new tasks and what they are made of."""
    contents: dict[str, bytes] = {}
    for row, draft in added:
        contents[row.spec.task_module] = draft.request.task_module
        contents[row.spec.validator_module] = draft.request.validator_module
        contents[row.spec.arguments] = draft.request.arguments
    rows.add_contents(connection, contents)
    rows.add_task(
        connection, [row for row, _ in added], [draft.key for _, draft in added]
    )


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
    granted = granted_blobs(connection, owner.account_id, draft.request.blobs)
    for digest in draft.request.blobs:
        if digest not in granted:
            raise DeniedError(
                "STO-R012",
                f"blob {digest[:12]}… is not yours to name",
                hint="upload it first, then submit",
            )
    return tuple({name for types in granted.values() for name in types})
