"""What the public learns of a workunit and of an outcome: digests and commitments.

Everything that could be guessed is salted: what belongs to an attempt by its statement's
nonce, a result by its payload's. Volunteers and the researcher hold what opens them;
where the server's copies are deleted, nobody else can. `finish_task` is the one place
where a task becomes final (I6): outcome row, state and event together.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from sqlalchemy import select, update

from stoilo.audit.format.facts import OutcomeRecord, WorkunitRecord
from stoilo.audit.format.merkle import leaf_hash
from stoilo.audit.format.records import salted_commitment, task_commitment
from stoilo.audit.read.case import Case, ResultPayload
from stoilo.core.digests import Digest, Domain, content_digest, domain_digest
from stoilo.core.errors import UsageError
from stoilo.core.statement import Statement
from stoilo.server.db import rows, schema
from stoilo.server.log.outbox import Event, EventKind, note_events, read_draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from stoilo.audit.format.facts import Record
    from stoilo.server.db.records import AttemptRow, Outcome, TaskRow
    from stoilo.server.db.store import Store
    from stoilo.server.log.ports import Log


_COSIGNATURE_BYTES = {4 + 8 + 64, 4 + 8 + 2420}  # Ed25519, ML-DSA-44


class _Document(msgspec.Struct):
    predicate: Statement


_OWN = msgspec.json.Decoder(_Document)
_PAYLOAD = msgspec.json.Decoder(ResultPayload)


def read_sealed(statement: bytes) -> Statement:
    """Return a statement that this server rendered itself; many are read, so unchecked."""
    return _OWN.decode(statement).predicate


def submitter_commitment(salt: str) -> Digest:
    """Return the public, salted name of an account."""
    return domain_digest(Domain.COMMITMENT, b"submitter", bytes.fromhex(salt))


def review_commitment(salt: str, envelope: bytes) -> str:
    """Return the public name of a review; `salt` is its reviewer's account's."""
    return salted_commitment(salt, "review", content_digest(envelope))


def workunit_record(
    attempt: AttemptRow,  # sealed and logged
    codes: tuple[str, ...],  # of the gate's findings
    time: int,  # when the workunit was made, or the admission withdrawn, s
    *,
    issued: bool,  # which of the two
    # digest of each review in the statement → its commitment
    reviews: Mapping[str, str],
) -> WorkunitRecord:
    """Return the public explanation of an attempt's admission, which has its place."""
    sealed = read_sealed(attempt.statement or b"")
    note = (attempt.proof or b"").partition(b"\n\n")[2]
    size, cosigned_at = _read_note(note)
    state: Literal["issued", "withdrawn"] = "issued" if issued else "withdrawn"

    def salted(what: str, *values: str) -> str:
        return salted_commitment(sealed.nonce, what, *values)

    return WorkunitRecord(
        origin=sealed.origin,
        time=time,
        state=state,
        admission=attempt.log_index or 0,
        admission_leaf=leaf_hash(attempt.leaf or b"").hex(),
        task=task_commitment(attempt.task_id),
        attempt=attempt.number,
        submitter=sealed.submitter,
        public_source=sealed.public_source,
        source=sealed.task_module
        if sealed.public_source
        else salted("source", sealed.task_module),
        validator=salted("validator", sealed.validator_module),
        arguments=salted("arguments", sealed.arguments),
        blobs=salted("blobs", *sealed.blobs),
        level=sealed.level,
        level_digest=sealed.level_digest,
        policy_digest=sealed.policy_digest,
        language_digest=sealed.language_digest,
        flavor=sealed.flavor,
        limits=sealed.limits,
        redundancy=sealed.redundancy,
        epoch=sealed.epoch,
        admitted_at=sealed.admitted_at,
        not_after=sealed.not_after,
        checkpoint=size,
        checkpoint_time=cosigned_at,
        codes=codes,
        libraries=sealed.libraries,
        reviews=tuple(
            reviews[digest]
            for text in sealed.reviewers
            if (digest := content_digest(text.encode())) in reviews
        ),
    )


def _outcome_record(
    payload: ResultPayload, admission: int | None, origin: str
) -> OutcomeRecord:
    """Return the public record of a task's outcome; its result is salted."""
    return OutcomeRecord(
        origin=origin,
        time=payload.finished_at,
        task=task_commitment(payload.task_id),
        attempt=payload.attempt,
        admission=-1 if admission is None else admission,
        state=payload.state,
        code=payload.code,
        result=salted_commitment(payload.nonce, "result", payload.result_sha256),
        agreeing=payload.agreeing,
    )


@lru_cache(maxsize=8)  # many proofs share a checkpoint
def _read_note(note: bytes) -> tuple[int, int]:
    """Return size and newest cosignature time of a checkpoint of the log; 0 for neither.

    What does not look like one says nothing.
    """
    body, _, signatures = note.partition(b"\n\n")
    lines = body.split(b"\n")
    size = int(lines[1]) if len(lines) > 1 and lines[1].isdigit() else 0
    return size, max(map(_cosigned_at, signatures.split(b"\n")), default=0)


def _cosigned_at(line: bytes) -> int:
    try:
        data = base64.b64decode(line.rpartition(b" ")[2], validate=True)
    except binascii.Error:
        return 0
    if len(data) not in _COSIGNATURE_BYTES:
        return 0
    return int.from_bytes(data[4:12], "big")


_NO_REVIEWS = b'"reviewers":[]'

OutboxRow = Any  # A row of `schema.event`; SQLAlchemy's rows have no better type


class RecordWriter:
    """Makes the records of one batch of events; reads all rows they need at once."""

    def __init__(
        self,
        store: Store,  # where the rows are
        log: Log,  # knows the places of leaves that a killed server could not note
        origin: str,  # of project and log
        events: Sequence[OutboxRow],  # rows of the outbox
    ) -> None:
        self._store = store
        self._log = log
        self._origin = origin
        names = [
            event.key.partition(":")[2]
            for event in events
            if event.kind in {EventKind.ISSUED, EventKind.WITHDRAWN}
        ]
        done = [
            event.key.partition(":")[2]
            for event in events
            if event.kind == EventKind.OUTCOME
        ]
        with store.read() as connection:
            self._attempts = rows.attempts_named(connection, names)
            self._outcomes = _load_outcomes(connection, done)
            self._reviews = _load_reviews(
                connection, [attempt for attempt, _ in self._attempts.values()]
            )

    def record_of(self, event: OutboxRow) -> Record:
        """Return the record of one event."""
        name = event.key.partition(":")[2]
        match EventKind(event.kind):
            case EventKind.RECORD:
                return read_draft(event.record, self._origin)
            case EventKind.OUTCOME:
                return _outcome_record(*self._outcomes[name], self._origin)
            case kind:
                attempt, codes = self._attempts[name]
                return workunit_record(
                    self._placed(attempt),
                    codes,
                    event.created_at,
                    issued=kind is EventKind.ISSUED,
                    reviews=self._reviews,
                )

    def _placed(self, attempt: AttemptRow) -> AttemptRow:
        """Return the attempt with the place of its leaf.

        A server that was killed between appending and noting the place knows it from
        the log only, which keeps a leaf that it has; so one more attempt is logged than
        admitted at the most.
        """
        if attempt.log_index is not None:
            return attempt
        [place] = self._log.append_many([attempt.leaf or b""], [attempt.task_id])
        table = schema.attempt
        query = update(table).where(
            table.c.task_id == attempt.task_id, table.c.number == attempt.number
        )
        with self._store.write() as connection:
            connection.execute(query.values(log_index=place))
        return msgspec.structs.replace(attempt, log_index=place)


def _load_outcomes(
    connection: Connection, task_ids: Sequence[str]
) -> dict[str, tuple[ResultPayload, int | None]]:
    """Return what outcomes' records are made of, with the places of their admissions."""
    outcome, attempt = schema.outcome, schema.attempt
    decided = (attempt.c.task_id == outcome.c.task_id) & (
        attempt.c.number == outcome.c.attempt
    )
    query = (
        select(outcome.c.task_id, outcome.c.payload, attempt.c.log_index)
        .outerjoin(attempt, decided)
        .where(outcome.c.task_id.in_(list(task_ids)))
    )
    return {
        row.task_id: (_PAYLOAD.decode(row.payload), row.log_index)
        for row in connection.execute(query)
    }


def _load_reviews(
    connection: Connection, attempts: Iterable[AttemptRow]
) -> dict[str, str]:
    """Return digest → commitment of the reviews that sealed statements carry."""
    digests = {
        content_digest(text.encode())
        for attempt in attempts
        if attempt.statement and _NO_REVIEWS not in attempt.statement
        for text in read_sealed(attempt.statement).reviewers
    }
    if not digests:
        return {}
    table, accounts = schema.review, schema.account
    found = connection.execute(
        select(table.c.digest, table.c.envelope, accounts.c.salt)
        .join(accounts, accounts.c.id == table.c.account_id)
        .where(table.c.digest.in_(digests))
    )
    return {
        row.digest: review_commitment(row.salt, bytes(row.envelope)) for row in found
    }


def _seal_result(outcome: Outcome) -> bytes:
    """Return what the result's commitment is of."""
    return msgspec.msgpack.encode(
        (outcome.value, outcome.value_blob, outcome.error_type, outcome.items)
    )


def make_case(connection: Connection, task: TaskRow) -> Case:
    """Return what opens the log's entries of a task, as far as it is kept.

    It holds source, arguments, result and their salts: for the owner, or the operator.

    Raises:
        UsageError: ``STO-L023`` the task has no outcome, or was never admitted.
    """
    outcome, spec = rows.find_outcome(connection, task.task_id), task.spec
    number = outcome.attempt if outcome else task.attempt
    attempt = rows.find_attempt(connection, task.task_id, number)
    if outcome is None or attempt is None or not attempt.statement:
        raise UsageError(
            "STO-L023",
            "there is no result of this task that could be compared",
            hint="wait until it has ended",
        )
    names = (spec.task_module, spec.validator_module, spec.arguments)
    kept = rows.load_contents(connection, {*names})
    parts = [kept.get(name, b"") for name in names]
    query = select(schema.outcome.c.payload)
    found = connection.scalar(query.where(schema.outcome.c.task_id == task.task_id))
    payload, result = found or b"", _seal_result(outcome)
    if payload and _PAYLOAD.decode(payload).result_sha256 != content_digest(result):
        result = b""  # deleted since
    return Case(
        statement=attempt.statement,
        task_module=parts[0],
        validator_module=parts[1],
        compare_entry=spec.compare_entry,
        arguments=parts[2],
        payload=payload,
        result=result,
    )


def finish_task(
    connection: Connection, task: TaskRow, outcome: Outcome, now: int
) -> bool:
    """Give `task` its outcome inside the caller's transaction; once only.

    Returns:
        False when the task was final already and nothing changed.
    """
    if task.state.final:
        return False
    result = _seal_result(outcome)
    payload = ResultPayload(
        task_id=task.task_id,
        attempt=outcome.attempt,
        state=outcome.state.value,
        code=outcome.code,
        result_sha256=content_digest(result),
        finished_at=now,
        nonce=secrets.token_hex(32),
        agreeing=outcome.agreeing,
    )
    told = msgspec.json.encode(payload)
    if not rows.add_outcome(connection, task.task_id, outcome, now, told):
        return False
    rows.move_task(connection, task, outcome.state, now)
    event = Event(f"outcome:{task.task_id}", EventKind.OUTCOME, now)
    note_events(connection, [event])
    return True
