"""What a task ends in: a value, the researcher's own error, or the system's.

Errors are returned, never raised (thesis §7.1.2). A `UserError` is also an instance of
the builtin exception that the function raised, where that is one: ``except ValueError``
and ``isinstance(result, ValueError)`` both work after ``raise result``.
Values in a poll's final answer are untrusted bytes.
"""

from __future__ import annotations

import builtins
import functools
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, Union

from stoilo.core.codec.nodes import from_node
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import StoiloError, TrustError, UsageError, WaitError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.tracebacks import Call, split_error
from stoilo.core.types import TaskState

if TYPE_CHECKING:
    from types import ModuleType

    from stoilo.client.wire import Wire


ResultT = TypeVar("ResultT")  # What the researcher's function returns


@dataclass(frozen=True, slots=True)
class Frame:
    """One call that was under way when the function raised."""

    name: str  # qualified name of the function, as it ran
    line: int  # of the task's module, from 1
    # Where it was written, ``file.py:12`` or ``In[3]:2``; empty for a restored task and
    # for lines of ours
    place: str = ""
    text: str = ""  # that line of the module; empty for a restored task

    def __str__(self) -> str:
        """Return ``file.py:12, in helper: return 1 / x``."""
        place = self.place or f"task module, line {self.line}"
        text = f": {self.text}" if self.text else ""
        return f"{place}, in {self.name}{text}"


@dataclass(frozen=True, slots=True)
class KnownSource:
    """What is known here of a task's module; nothing of a restored task's."""

    text: str = ""
    origins: tuple[str, ...] = ()  # see `Captured.origins`

    def frame(self, call: Call) -> Frame:
        """Return the call with what its line says and where that was written."""
        rows = self.text.splitlines()
        index = call.line - 1
        text = rows[index].strip()[:200] if 0 <= index < len(rows) else ""
        place = self.origins[index] if 0 <= index < len(self.origins) else ""
        return Frame(call.name, call.line, place, text)


UNKNOWN = KnownSource()


class UserError(Exception):
    """The researcher's function raised, on a quorum of volunteers.

    Attributes:
        exception_type: class name of the exception, for example ``ZeroDivisionError``.
        text: its text, bounded and free of paths.
        code: a stable code: ``STO-G200`` for an exception, others for limits and guards.
        output: what the function printed before.
        frames: the function's calls that were under way, innermost last. A traceback of
            the raised error shows them too.
    """

    def __init__(
        self,
        exception_type: str = "",
        text: str = "",
        code: str = "",
        output: str = "",
        frames: tuple[Frame, ...] = (),
    ) -> None:
        Exception.__init__(self, exception_type, text, code, output, frames)
        self.frames = frames
        if frames:
            rows = [f"  {frame}" for frame in frames]
            self.add_note("\n".join(["On the volunteers, innermost last:", *rows]))
        self.exception_type = exception_type
        self.text = text
        self.code = code
        self.output = output

    def __str__(self) -> str:
        """Return ``ZeroDivisionError: division by zero``, with the code if any."""
        text = (
            f"{self.exception_type}: {self.text}" if self.text else self.exception_type
        )
        return f"{text} [{self.code}]" if self.code else text

    def __repr__(self) -> str:
        """Return a constructor-like text."""
        return f"UserError({self.exception_type!r}, {self.text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Copy by values: the mixed-in class is made again on the other side."""
        values = (self.exception_type, self.text, self.code, self.output, self.frames)
        return user_error, values


class SystemError(Exception):  # noqa: A001 - the thesis's name
    """No quorum came together, or the task ended without an outcome of its function.

    Attributes:
        code: stable code; `stoilo explain CODE` says what to do.
        text: one sentence.
        task_id: the task, for `stoilo task status`.
    """

    def __init__(self, code: str = "", text: str = "", task_id: str = "") -> None:
        super().__init__(code, text, task_id)
        self.code = code
        self.text = text
        self.task_id = task_id

    def __str__(self) -> str:
        """Return the sentence with its code."""
        return f"{self.text} [{self.code}]" if self.code else self.text


class TimedOut(WaitError):
    """The caller stopped waiting; the task goes on and can be restored by its id.

    Attributes:
        task_id: pass it to ``conn.restore_task``.
        state: where the task was when the waiting ended; empty when unknown.
    """

    def __init__(self, task_id: str, waited_s: float, state: str = "") -> None:
        super().__init__(
            "STO-C060",
            f"task {task_id} was not finished after {waited_s:g} s",
            hint=f"it goes on: conn.restore_task({task_id!r}).result() waits again",
        )
        self.task_id = task_id
        self.state = state


# What `result()` gives; a wait that ends early gives `TimedOut` instead
TaskResult = Union[Any, UserError, SystemError]  # noqa: UP007 - printed as in the thesis

# `TaskResult` with the type of the function's value, for type checkers
TaskOutcome = Union[ResultT, UserError, SystemError, TimedOut]  # noqa: UP007 - generic

# Raised again, these would mean something else to the interpreter
_NEVER_MIXED = (StopIteration, StopAsyncIteration, BaseExceptionGroup)


@functools.cache
def _error_class(exception_type: str) -> type[UserError]:
    found = getattr(builtins, exception_type, None)
    if (
        not isinstance(found, type)
        or not issubclass(found, Exception)
        or issubclass(found, _NEVER_MIXED)
        or found is Exception
    ):
        return UserError
    try:
        return type("UserError", (UserError, found), {"__module__": __name__})
    except TypeError:  # a layout that does not mix
        return UserError


def user_error(
    exception_type: str,
    text: str,
    code: str = "",
    output: str = "",
    frames: tuple[Frame, ...] = (),
) -> UserError:
    """Return the `UserError` that also is the builtin exception of that name."""
    return _error_class(exception_type)(exception_type, text, code, output, frames)


def _read_error(
    answer: pb.PollTaskResponse | pb.ItemOutcome, output: str, source: KnownSource
) -> UserError:
    text, calls = split_error(answer.error_text)
    frames = tuple(map(source.frame, calls))
    return user_error(answer.error_type, text, answer.code, output, frames)


DEFAULT_TEXTS = {
    TaskState.SYSTEM_ERROR.value: ("STO-R052", "no quorum of equivalent results"),
    TaskState.CANCELLED.value: ("STO-R062", "the task was cancelled"),
    TaskState.EXPIRED.value: ("STO-R060", "the task expired before it was finished"),
}


async def read_outcome(
    wire: Wire, answer: pb.PollTaskResponse, source: KnownSource = UNKNOWN
) -> TaskResult:
    """Return the outcome of a final task; large values are downloaded.

    Raises:
        TrustError: ``STO-D…`` or ``STO-C056``: the answer does not hold together.
    """
    if answer.items:
        return await read_items(wire, answer, len(answer.items), source)
    if answer.state == TaskState.SUCCEEDED.value:
        data = answer.value
        if answer.value_blob:
            data = await wire.download(answer.value_blob, patience_s=None)
        return read_value(data)
    if answer.state == TaskState.USER_ERROR.value:
        return _read_error(answer, answer.output, source)
    return _system_error(answer.state, answer.code, answer.error_text, answer.task_id)


def read_value(data: bytes) -> TaskResult:
    """Return the Python value of encoded result bytes, which a volunteer may have made.

    Raises:
        TrustError: ``STO-D…``, they are none, or numpy or torch refuses what they say.
        UsageError: ``STO-D011``, a library is missing.
    """
    try:
        return from_node(decode(data))
    except ImportError as error:
        raise UsageError(
            "STO-D011",
            f"the result holds arrays that need {error.name}, which is not installed here",
            hint=f"pip install {error.name}, then restore the task: its result is kept",
        ) from None
    except StoiloError:
        raise
    except Exception as error:
        raise TrustError(
            "STO-D002",
            f"the result cannot be made into a value: {type(error).__name__}: {error}",
        ) from error


async def read_items(
    wire: Wire, answer: pb.PollTaskResponse, count: int, source: KnownSource = UNKNOWN
) -> list[TaskResult]:
    """Return one outcome an item; a task that failed as a whole fails each item."""
    if not answer.items:
        if answer.state == TaskState.SUCCEEDED.value:
            values = await read_outcome(wire, answer, source)
            if not isinstance(values, list) or len(values) != count:
                raise TrustError("STO-C056", "the map's result has another length")
            return values
        whole = await read_outcome(wire, answer, source)
        return [whole for _ in range(count)]
    if len(answer.items) != count:
        raise TrustError("STO-C056", "the map's result has another length")
    return [
        await _read_item(wire, item, answer.task_id, source) for item in answer.items
    ]


async def _read_item(
    wire: Wire, item: pb.ItemOutcome, task_id: str, source: KnownSource
) -> TaskResult:
    if item.state == TaskState.SUCCEEDED.value:
        data = item.value
        if item.value_blob:
            data = await wire.download(item.value_blob, patience_s=None)
        return read_value(data)
    if item.state == TaskState.USER_ERROR.value:
        return _read_error(item, "", source)
    return _system_error(item.state, item.code, item.error_text, task_id)


def _system_error(state: str, code: str, text: str, task_id: str) -> SystemError:
    known_code, known_text = DEFAULT_TEXTS.get(
        state, DEFAULT_TEXTS[TaskState.SYSTEM_ERROR.value]
    )
    return SystemError(code or known_code, text or known_text, task_id)


def as_columns(outcomes: list[TaskResult]) -> dict[str, list[Any]]:
    """Return columns of equal length, one row an outcome, as pandas and polars take them.

    Results that all are dicts with text keys give a column a key (None where one lacks
    it); else they stand in the column ``result``. Where a call failed its columns hold
    None, and one more, ``error`` (or ``error_``), says why; none when none failed.
    """
    good = [one for one in outcomes if not isinstance(one, Exception)]
    is_table = good and all(
        isinstance(one, dict) and all(isinstance(key, str) for key in one)
        for one in good
    )
    blank: dict[str, Any] = {} if is_table else {"result": None}
    rows: list[dict[str, Any]] = [
        blank if isinstance(one, Exception) else one if is_table else {"result": one}
        for one in outcomes
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    if len(good) < len(outcomes):
        told = [str(one) if isinstance(one, Exception) else None for one in outcomes]
        columns["error_" if "error" in columns else "error"] = told
    return columns


def load_frames(library: str) -> ModuleType:
    """Return pandas or polars, which nothing of ours needs; raises ``STO-U002``."""
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        said = f"to_{library}() needs {library}"
        hint = f"pip install {library}, or take to_columns()"
        raise UsageError("STO-U002", said, hint=hint) from error
