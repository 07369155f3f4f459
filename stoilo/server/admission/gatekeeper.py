"""The gate's door: verdicts cached by digest, one judgement at a time per source."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Protocol

import msgspec
from sqlalchemy import insert, select

from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import PolicyRefusal
from stoilo.core.types import Finding, Verdict
from stoilo.policies.gate import GateRequest, verdict_key
from stoilo.policies.levels import find_argument_types
from stoilo.server.admission.blobs import granted_blobs
from stoilo.server.db import rows, schema
from stoilo.server.db.batcher import Batcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.core.errors import StoiloError
    from stoilo.policies.policy import Policy
    from stoilo.server.admission.draft import HeldLibraries
    from stoilo.server.db.records import TaskRow
    from stoilo.server.db.store import Store


CACHED_VERDICTS = 4096
TOO_COSTLY = "STO-P054"  # the gate itself remembers for which sources that is final

_Asked = tuple[str, GateRequest]  # A verdict's key and what it is about


class Judge(Protocol):
    """The gate: a pure function behind a jail (`stoilo.policies.jailed.Gate`)."""

    def judge_many(
        self, requests: Sequence[GateRequest]
    ) -> list[Verdict | StoiloError]:
        """Return a verdict or an error for each of one researcher's sources; blocks."""
        ...


class GateRefusal(PolicyRefusal):
    """The gate's no, with the findings that explain it."""

    def __init__(self, verdict: Verdict) -> None:
        first = next((f for f in verdict.findings if f.severity == "error"), None)
        reason = (
            f"line {first.line}: {first.message}" if first else "no level admits it"
        )
        super().__init__(
            "STO-R020",
            f"the gate refuses the source: {reason}",
            hint=first.hint if first else "see the findings",
        )
        self.findings: tuple[Finding, ...] = verdict.findings


class Gatekeeper:
    """Asks the judge once per (source, policy, libraries, engine) and remembers the answer.

    Sources of one account that arrive together share one jailed child and one
    transaction; different accounts never share a child.

    The cache in the database survives restarts; a verdict's key holds the digests of
    policy and engine, so a new policy or language layer asks anew.
    """

    def __init__(
        self,
        judge: Judge,
        store: Store,
        clock: Callable[[], int],
        policy: Policy,
        held: HeldLibraries = tuple,
    ) -> None:
        self._judge = judge
        self.held = held
        self._policy = policy
        self._store = store
        self._clock = clock
        self._known: dict[str, Verdict] = {}
        self._unsaved: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._running: dict[str, asyncio.Future[Verdict]] = {}
        self._asking: dict[int, Batcher[_Asked, Verdict]] = {}

    def review_again(self, task: TaskRow) -> str:
        """Return the policy digest under which `task` is admitted today (design §1.4).

        The stored verdict holds while policy and engine are those that gave it;
        otherwise the stored source is judged anew. Blocks.

        Raises:
            GateRefusal: ``STO-R020``, today's policy does not admit it any more.
        """
        spec = task.spec
        held = set(spec.libraries) <= set(self.held())
        if task.attempt == 1 and spec.policy_digest == self._policy.digest and held:
            return spec.policy_digest  # judged at submission, by this policy
        verdict = self.judge_again(task)
        if not verdict.admitted:
            raise GateRefusal(verdict)
        return verdict.policy_digest

    def judge_again(self, task: TaskRow) -> Verdict:
        """Return what today's policy says of a stored task's source. Blocks.

        Raises:
            StoiloError: it cannot be judged now.
        """
        spec = task.spec
        with self._store.read() as connection:
            wanted = {spec.task_module, spec.validator_module, spec.arguments}
            contents = rows.load_contents(connection, wanted)
            blobs = granted_blobs(connection, task.account_id, spec.blobs)
        types = set(find_argument_types(decode(contents[spec.arguments])))
        types.update(name for found in blobs.values() for name in found)
        named = {spec.init_entry, spec.compare_entry} - {""}
        request = GateRequest(
            contents[spec.task_module],
            contents[spec.validator_module] or None,
            spec.entry,
            spec.level,
            self._policy,
            tuple(sorted(named)),
            tuple(sorted(types)),
            self.held(),
        )
        key = verdict_key(request)
        verdict = self._known.get(key)
        if verdict is None:
            [answer] = self._load_or_judge([(key, request)])
            if isinstance(answer, Exception):
                raise answer
            verdict = answer
        return verdict

    async def judge(self, request: GateRequest, account_id: int) -> Verdict:
        """Return the verdict on hostile source; raises ``STO-P004`` when it cannot."""
        key = verdict_key(request)
        if key in self._known:
            return self._known[key]
        running = self._running.get(key)
        if running is None:
            running = asyncio.ensure_future(self._ask(account_id, (key, request)))
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key, None))
        verdict = await asyncio.shield(running)
        if _is_lasting(verdict):
            if len(self._known) >= CACHED_VERDICTS:
                self._known.pop(next(iter(self._known)))
            self._known[key] = verdict
        return verdict

    async def _ask(self, account_id: int, asked: _Asked) -> Verdict:
        """Join the account's batch; the last one out closes it."""
        batcher = self._asking.setdefault(account_id, Batcher(self._load_or_judge))
        try:
            return await batcher.submit(asked)
        finally:
            if batcher.idle:
                self._asking.pop(account_id, None)

    def _load_or_judge(self, asked: Sequence[_Asked]) -> list[Verdict | Exception]:
        """Return the stored verdicts, and judge and store (durably) the others."""
        known = self._load([key for key, _ in asked])
        fresh = {key: one for key, one in asked if key not in known}
        answers: dict[str, Verdict | Exception] = dict(known)
        if fresh:
            judged = self._judge.judge_many(list(fresh.values()))
            answers.update(zip(fresh, judged, strict=True))
        self._remember({key: answers[key] for key in fresh})
        return [answers[key] for key, _ in asked]

    def _load(self, keys: list[str]) -> dict[str, Verdict]:
        table = schema.verdict
        query = select(table.c.key, table.c.body).where(table.c.key.in_(keys))
        with self._store.read() as connection:
            return {
                row.key: msgspec.msgpack.decode(row.body, type=Verdict)
                for row in connection.execute(query)
            }

    def _remember(self, answers: dict[str, Verdict | Exception]) -> None:
        """Keep new verdicts for `save_new`; what could not be judged is no verdict."""
        with self._lock:
            if len(self._unsaved) >= CACHED_VERDICTS:  # many refusals, no task
                self._unsaved.clear()
            for key, answer in answers.items():
                if isinstance(answer, Verdict) and _is_lasting(answer):
                    self._unsaved[key] = msgspec.msgpack.encode(answer)

    def save_new(self, connection: Connection) -> None:
        """Store new verdicts in the caller's transaction, which commits anyway.

        Only a cache: what a crash loses is judged again.
        """
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        if not unsaved:
            return
        table, now = schema.verdict, self._clock()
        query = select(table.c.key).where(table.c.key.in_(list(unsaved)))
        known = set(connection.scalars(query))
        fresh = [
            {"key": key, "body": body, "created_at": now}
            for key, body in unsaved.items()
            if key not in known
        ]
        if fresh:
            connection.execute(insert(table), fresh)


def _is_lasting(verdict: Verdict) -> bool:
    """Whether a verdict may be kept: on a busy machine any source may take too long."""
    return all(one.code != TOO_COSTLY for one in verdict.findings)
