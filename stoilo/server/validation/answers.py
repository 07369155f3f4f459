"""What a result file says, after every check that needs no validator (design §1.8).

The header is compared with the reporting host's copy before anything else is decoded;
the rest is hostile until the strict codec has read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from stoilo.core.codebook import load_codebook
from stoilo.core.codec.nodes import DATA_BOUNDS
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS
from stoilo.core.statement import statement_digest
from stoilo.core.types import RunStatus
from stoilo.executor.verifier.workunit import (
    ResultHeader,
    parse_result,
    parse_result_header,
)

if TYPE_CHECKING:
    from stoilo.core.codec.nodes import Node
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.engines.interface import ReceivedResult


ERROR_TEXT_CHARS = 4096


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """Outcome of one call as the volunteer claims it.

    Attributes:
        status: how the call ended.
        value: encoded skeleton, checked, when status is ok.
        error_type: class name of the exception, bounded.
        error_text: its text, bounded.
        code: stable code when neither ok nor the task's own exception.
    """

    status: RunStatus
    value: bytes | None = None
    error_type: str = ""
    error_text: str = ""
    code: str = ""

    @property
    def countable(self) -> bool:
        """Whether it can be part of an equivalence class (a value or an exception)."""
        return self.status in {RunStatus.OK, RunStatus.USER_ERROR}


@dataclass(frozen=True, slots=True)
class Answer:
    """One result: its items (one for a plain task) and the captured output."""

    items: tuple[ItemAnswer, ...]
    output: str


def read_result(result: ReceivedResult) -> bytes:
    """Return the file's bytes, or raise ``STO-R081`` when it is not what was reported."""
    with result.path.open("rb") as stream:
        data = stream.read(result.size + 1)
    if len(data) != result.size or sha256(data).hexdigest() != result.digest:
        raise TrustError("STO-R081", "the result file changed after it was reported")
    return data


def check_header(
    data: bytes, result: ReceivedResult, task: TaskRow, attempt: AttemptRow
) -> ResultHeader:
    """Compare the header with the copy the host was given.

    Raises:
        TrustError: ``STO-R080`` naming the field, ``STO-X020`` unreadable.
    """
    header = parse_result_header(data)
    pairs: tuple[tuple[str, object, object], ...] = (
        ("result", header.result, result.name),
        ("workunit", header.workunit, result.workunit),
    )
    if header.disposition == "ran":
        admission = statement_digest(attempt.statement or b"")
        pairs += (
            ("admission", header.admission, admission),
            ("attempt", header.attempt, attempt.number),
            ("flavor", header.flavor, task.spec.flavor),
        )
    if task.spec.map_items:  # these keep nothing to go on from
        pairs += (("resumed_at", header.resumed_at, 0),)
    for field, said, expected in pairs:
        if said != expected:
            raise TrustError(
                "STO-R080", f"the result's {field} is not that of the host's copy"
            )
    return header


def parse_answer(data: bytes, map_items: int) -> Answer:
    """Decode frame and output of a hostile file whose header has been checked.

    Raises:
        TrustError: ``STO-X02x``, ``STO-D…`` or ``STO-R081``.
    """
    file = parse_result(data)
    frame = decode(file.frame)
    if not isinstance(frame, dict):
        raise _malformed("is not a record")
    output = file.output.decode("utf-8", "replace")
    if not map_items:
        return Answer((_parse_item(frame),), output)
    items = frame.get("items")
    if not isinstance(items, list) or len(items) != map_items:
        raise _malformed(f"does not hold {map_items} items")
    return Answer(tuple(_parse_item(item) for item in items), output)


def _malformed(detail: str) -> TrustError:
    return TrustError("STO-R081", f"the result frame {detail}")


def _parse_item(node: Node) -> ItemAnswer:
    if not isinstance(node, dict):
        raise _malformed("holds an item that is not a record")
    status = node.get("status")
    if not isinstance(status, str) or status not in set(RunStatus):
        raise _malformed("holds an unknown status")
    value = node.get("value")
    answer = ItemAnswer(
        RunStatus(status),
        value=bytes(value) if isinstance(value, bytes | memoryview) else None,
        error_type=_text(node.get("error_type"), BOUNDS.name_chars),
        error_text=_text(node.get("error_text"), ERROR_TEXT_CHARS),
        code=known_code(_text(node.get("code"), 16)),
    )
    if answer.status is RunStatus.OK:
        if answer.value is None:
            raise _malformed("says ok without a value")
        decode(answer.value, DATA_BOUNDS)
    return answer


def known_code(said: str) -> str:
    """Return a code that a volunteer wrote, when it is one; ``STO-R082`` for others."""
    return said if not said or said in load_codebook() else "STO-R082"


def _text(node: Node, bound: int) -> str:
    return node[:bound] if isinstance(node, str) else ""
