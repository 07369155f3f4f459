"""A case: what one task was made of and came to, given to whoever shall run it again.

The log holds digests and salted commitments; a case opens them. The task's owner saves it
from its page, the operator's machine makes it from the server's tables. All of it is
hostile until `check_case` has compared it with what a signed checkpoint covers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from stoilo.audit.format.facts import MentionKind, OutcomeRecord
from stoilo.audit.format.proof import LeafKind, parse_leaf
from stoilo.audit.format.records import Mention, salted_commitment, task_commitment
from stoilo.audit.read.reader import LogView
from stoilo.audit.read.search import Query, search_log
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError, UsageError, WaitError
from stoilo.core.statement import Statement, parse_statement, statement_digest

MAX_CASE_BYTES: Final = 64 * 1024 * 1024
_RECORDED: Final = frozenset({"succeeded", "user_error"})


class ResultPayload(msgspec.Struct, frozen=True):
    """What a result's record is made of; private, because it holds the salt."""

    task_id: str  # the task
    attempt: int  # the one that decided
    state: str  # the task's final state
    code: str  # why it did not succeed
    result_sha256: str  # of the canonical result
    finished_at: int  # s
    nonce: str  # the salt, 64 hex digits
    agreeing: int = 0  # results that agreed


class RecordedItem(msgspec.Struct, frozen=True):
    """What volunteers agreed on for one call."""

    state: str
    value: bytes | None = None  # encoded, None where it is a blob or there is none
    value_blob: str = ""  # digest of a large one
    error_type: str = ""  # class name of the task's exception


class Case(msgspec.Struct, frozen=True, tag="stoilo-case/1", tag_field="format"):
    """What the log only names; a part that is not told is empty."""

    statement: bytes  # what was logged and signed
    task_module: bytes
    validator_module: bytes
    compare_entry: str  # its comparator, empty for equality; no statement names it
    arguments: bytes  # encoded
    payload: bytes  # a `ResultPayload`
    result: bytes  # what `result_sha256` is of


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A case, every part of which is the one that the log names."""

    case: Case
    statement: Statement
    admission: int  # place of its leaf
    decided: int  # place of the outcome's leaf
    outcome: OutcomeRecord
    items: tuple[RecordedItem, ...]  # one for a plain task


def parse_case(data: bytes) -> Case:
    """Return the case in a file (hostile); raises ``STO-L010``."""
    try:
        return msgspec.json.decode(data, type=Case)
    except (msgspec.MsgspecError, ValueError) as error:
        raise TrustError("STO-L010", "this is no case of a task") from error


def check_case(log: LogView, case: Case) -> CheckedCase:
    """Compare a case with its log: the admission's leaf, then all that hangs on it.

    The whole log is read and its signed tree built again. Arguments that are not told are
    left to the caller.

    Raises:
        TrustError: ``STO-L141`` a part is another one; the log does not hold together.
        WaitError: ``STO-L056`` the log tells of no outcome yet.
        UsageError: ``STO-L023`` no volunteers' result decided; ``STO-L145`` what opens the
            result was deleted.
    """
    statement = parse_statement(case.statement)
    decided, outcome = _find_outcome(log, statement.task_id)
    leaf = parse_leaf(log.prove(outcome.admission)[0])
    admitted = statement_digest(case.statement)
    _same("statement", (leaf.kind, leaf.digest), (LeafKind.ADMISSION, admitted))
    check_part("source", case.task_module, statement.task_module)
    check_part("validators", case.validator_module, statement.validator_module)
    if case.arguments:
        check_part("arguments", case.arguments, statement.arguments)
    items = _read_result(case, outcome)
    return CheckedCase(case, statement, outcome.admission, decided, outcome, items)


def check_part(what: str, data: bytes, digest: str) -> None:
    """Raise ``STO-L141`` for another part than the one of `digest`, ``STO-L145`` for none."""
    if not data and content_digest(data) != digest:
        raise UsageError("STO-L145", f"the {what} is not in the case: it was deleted")
    _same(what, content_digest(data), digest)


def _same(what: str, found: object, named: object) -> None:
    if found != named:
        raise TrustError("STO-L141", f"the case's {what} is not what the log names")


def _find_outcome(log: LogView, task_id: str) -> tuple[int, OutcomeRecord]:
    name = Mention(MentionKind.COMMITMENT, task_commitment(task_id))
    for one in search_log(log, Query(mentions=frozenset({name}))).found:
        if isinstance(one.record, OutcomeRecord):
            if one.record.admission < 0 or one.record.state not in _RECORDED:
                said = f"it ended as {one.record.state}, without a result of volunteers"
                raise UsageError("STO-L023", f"nothing to compare a run with: {said}")
            return one.index, one.record
    raise WaitError(
        "STO-L056",
        "the log tells of no outcome of this task yet",
        hint="wait until it has ended and the log was published, then try again",
    )


def _read_result(case: Case, outcome: OutcomeRecord) -> tuple[RecordedItem, ...]:
    """Return what volunteers agreed on, once it is what the log commits to."""
    if not case.payload or not case.result:
        raise UsageError("STO-L145", "what opens the log's result has been deleted")
    try:
        payload = msgspec.json.decode(case.payload, type=ResultPayload)
        _same("result", content_digest(case.result), payload.result_sha256)
        salted = salted_commitment(payload.nonce, "result", payload.result_sha256)
        _same("result", salted, outcome.result)
        value, blob, error_type, items = msgspec.msgpack.decode(
            case.result,
            type=tuple[bytes | None, str, str, tuple[RecordedItem, ...]],
        )
    except msgspec.MsgspecError as error:
        raise TrustError("STO-L141", "the case's result cannot be read") from error
    return items or (RecordedItem(outcome.state, value, blob, error_type),)
