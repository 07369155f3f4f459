"""From a poll's final answer to what `result()` returns. Values are untrusted bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import TaskResult, user_error
from stoilo.core.codec.skeleton import decode
from stoilo.core.codec.values import from_node
from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import TaskState

if TYPE_CHECKING:
    from stoilo.client.wire import Wire


DEFAULT_TEXTS = {
    TaskState.SYSTEM_ERROR.value: ("STO-C063", "no quorum of equivalent results"),
    TaskState.CANCELLED.value: ("STO-C061", "the task was cancelled"),
    TaskState.EXPIRED.value: ("STO-C062", "the task expired before it was finished"),
}


async def read_outcome(wire: Wire, answer: pb.PollTaskResponse) -> TaskResult:
    """Return the outcome of a final task; large values are downloaded.

    Raises:
        TrustError: ``STO-D…`` or ``STO-C056``: the answer does not hold together.
    """
    if answer.items:
        return await read_items(wire, answer, len(answer.items))
    if answer.state == TaskState.SUCCEEDED.value:
        data = answer.value
        if answer.value_blob:
            data = await wire.download(answer.value_blob, patience_s=None)
        return read_value(data)
    if answer.state == TaskState.USER_ERROR.value:
        return user_error(
            answer.error_type, answer.error_text, answer.code, answer.output
        )
    return _system_error(answer.state, answer.code, answer.error_text, answer.task_id)


def read_value(data: bytes) -> TaskResult:
    """Return the Python value of encoded result bytes, which a volunteer may have made.

    Raises:
        TrustError: ``STO-D…``, they are none, or numpy or torch refuses what they say.
        UsageError: ``STO-C064``, a library is missing.
    """
    try:
        return from_node(decode(data))
    except ImportError as error:
        raise UsageError(
            "STO-C064",
            f"the result holds arrays that need {error.name}, which is not installed here",
            hint=f"pip install {error.name}, then restore the task: its result is kept",
        ) from None
    except StoiloError:
        raise
    except Exception as error:
        raise TrustError(
            "STO-D003",
            f"the result cannot be made into a value: {type(error).__name__}: {error}",
        ) from error


async def read_items(
    wire: Wire, answer: pb.PollTaskResponse, count: int
) -> list[TaskResult]:
    """Return one outcome an item; a task that failed as a whole fails each item."""
    if not answer.items:
        if answer.state == TaskState.SUCCEEDED.value:
            values = await read_outcome(wire, answer)
            if not isinstance(values, list) or len(values) != count:
                raise TrustError("STO-C057", "the map's result has another length")
            return values
        whole = await read_outcome(wire, answer)
        return [whole for _ in range(count)]
    if len(answer.items) != count:
        raise TrustError("STO-C057", "the map's result has another length")
    return [await _read_item(wire, item, answer.task_id) for item in answer.items]


async def _read_item(wire: Wire, item: pb.ItemOutcome, task_id: str) -> TaskResult:
    if item.state == TaskState.SUCCEEDED.value:
        data = item.value
        if item.value_blob:
            data = await wire.download(item.value_blob, patience_s=None)
        return read_value(data)
    if item.state == TaskState.USER_ERROR.value:
        return user_error(item.error_type, item.error_text, item.code)
    return _system_error(item.state, item.code, item.error_text, task_id)


def _system_error(state: str, code: str, text: str, task_id: str) -> TaskSystemError:
    known_code, known_text = DEFAULT_TEXTS.get(
        state, DEFAULT_TEXTS[TaskState.SYSTEM_ERROR.value]
    )
    return TaskSystemError(code or known_code, text or known_text, task_id)
