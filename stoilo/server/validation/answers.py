"""What result files say, and which of them say the same (design §1.8, thesis §7.2).

The header is compared with the reporting host's result before anything else is decoded;
the rest is hostile until the strict codec has read it. Classes are pure, the comparator
comes in: two user errors are the same; exactly one error against a value is different; else
the comparator decides. A class speaks when it has a quorum.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from stoilo.core.codebook import load_codebook
from stoilo.core.codec.reader import DATA_BOUNDS
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import TrustError
from stoilo.core.statement import statement_digest
from stoilo.core.tracebacks import TOLD_CHARS, parse_calls, render_error
from stoilo.core.types import BOUNDS, RunStatus, TaskState
from stoilo.executor.verifier.workunit import (
    ResultHeader,
    parse_result,
    parse_result_header,
)
from stoilo.server.db.records import ItemResult

if TYPE_CHECKING:
    from stoilo.core.codec.nodes import Node
    from stoilo.server.db.records import AttemptRow, TaskRow
    from stoilo.server.engines.interface import ReceivedResult


ERROR_TEXT_CHARS = 4096
MOST: Final = 256  # answers in memory
MOST_BYTES: Final = 64 * 1024 * 1024  # of the files that they are from


@dataclass(frozen=True, slots=True)
class ItemAnswer:
    """Outcome of one call as the volunteer claims it."""

    status: RunStatus  # how the call ended
    value: bytes | None = None  # encoded skeleton, checked, when status is ok
    error_type: str = ""  # class name of the exception, bounded
    error_text: str = ""  # its text, bounded, and where it passed: `core.tracebacks`
    code: str = ""  # stable code when neither ok nor the task's own exception

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
    """Compare the header with the result that the host was given.

    Raises:
        TrustError: ``STO-R081`` naming the field, ``STO-X020`` unreadable.
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
                "STO-R081", f"the file's {field} is not that of the host's result"
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
        error_text=render_error(
            _text(node.get("error_text"), ERROR_TEXT_CHARS),
            parse_calls(_text(node.get("calls"), TOLD_CHARS)),
        ),
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


class AnswerCache:
    """The newest answers; thread-safe. What is not here is read from its file again.

    Args:
        most_bytes: of the results' files together.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._answers: OrderedDict[str, tuple[int, Answer]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of the files whose answers are here."""
        return self._bytes

    def find(self, key: str) -> Answer | None:
        """Return an answer that is still here."""
        with self._lock:
            known = self._answers.get(key)
        return known[1] if known is not None else None

    def keep(self, key: str, size: int, answer: Answer) -> None:
        """Keep an answer from a file of `size` bytes, and let the oldest go."""
        with self._lock:
            before, _ = self._answers.pop(key, (0, None))
            self._answers[key] = size, answer
            self._bytes += size - before
            while len(self._answers) > MOST or self._bytes > self._most_bytes:
                _, (gone, _) = self._answers.popitem(last=False)
                self._bytes -= gone


CompareValues = Callable[[bytes, bytes], bool]
"""Says whether two encoded values are the same answer."""


def same_items(left: ItemAnswer, right: ItemAnswer, compare: CompareValues) -> bool:
    """Whether two countable answers to one call are in the same class."""
    if left.status is not right.status:
        return False
    if left.status is RunStatus.USER_ERROR:
        return True
    return compare(left.value or b"", right.value or b"")


def item_outcome(
    answers: Sequence[ItemAnswer], quorum: int, compare: CompareValues
) -> ItemResult:
    """Return the outcome of one call: the first class that reaches `quorum`.

    Without one it is a system error ``STO-R052``; the client sends that item again.
    """
    classes: list[list[ItemAnswer]] = []
    for answer in answers:
        if not answer.countable:
            continue
        for members in classes:
            if same_items(members[0], answer, compare):
                members.append(answer)
                break
        else:
            classes.append([answer])
        for members in classes:
            if len(members) >= quorum:
                return render_item(members[0])
    failed = next((answer for answer in answers if not answer.countable), None)
    return ItemResult(
        TaskState.SYSTEM_ERROR,
        error_text=failed.error_text if failed else "the results do not agree",
        code=(failed.code if failed else "") or "STO-R052",
    )


def render_item(answer: ItemAnswer) -> ItemResult:
    """Return the outcome that a countable answer stands for."""
    if answer.status is RunStatus.OK:
        return ItemResult(TaskState.SUCCEEDED, value=answer.value)
    return ItemResult(
        TaskState.USER_ERROR,
        error_type=answer.error_type,
        error_text=answer.error_text,
        code=answer.code,
    )


def item_outcomes(
    answers: Sequence[Answer], quorum: int, compare: CompareValues
) -> tuple[ItemResult, ...]:
    """Return the outcome of every call of a map task, each with its own classes."""
    columns = zip(*(answer.items for answer in answers), strict=True)
    return tuple(item_outcome(column, quorum, compare) for column in columns)
