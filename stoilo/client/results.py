"""What a task ends in: a value, the researcher's own error, or the system's.

Errors are returned, never raised (thesis §7.1.2). A `UserError` is also an instance of
the builtin exception that the function raised, where that is one: ``except ValueError``
and ``isinstance(result, ValueError)`` both work after ``raise result``.
"""

from __future__ import annotations

import builtins
import functools
from typing import Any, TypeVar, Union

from stoilo.core.errors import WaitError

ResultT = TypeVar("ResultT")
"""What the researcher's function returns."""


class UserError(Exception):
    """The researcher's function raised, on a quorum of volunteers.

    Attributes:
        exception_type: class name of the exception, for example ``ZeroDivisionError``.
        text: its text, bounded and free of paths.
        code: a stable code: ``STO-G200`` for an exception, others for limits and guards.
        output: what the function printed before.
    """

    def __init__(
        self, exception_type: str = "", text: str = "", code: str = "", output: str = ""
    ) -> None:
        Exception.__init__(self, exception_type, text, code, output)
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
        return user_error, (self.exception_type, self.text, self.code, self.output)


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


TaskResult = Union[Any, UserError, SystemError]  # noqa: UP007 - printed as in the thesis
"""What ``result()`` gives; a wait that ends early gives `TimedOut` instead."""

TaskOutcome = Union[ResultT, UserError, SystemError, TimedOut]  # noqa: UP007 - generic
"""`TaskResult` with the type of the function's value, for type checkers."""

_NEVER_MIXED = (StopIteration, StopAsyncIteration, BaseExceptionGroup)
"""Raised again, these would mean something else to the interpreter."""


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
    exception_type: str, text: str, code: str = "", output: str = ""
) -> UserError:
    """Return the `UserError` that also is the builtin exception of that name."""
    return _error_class(exception_type)(exception_type, text, code, output)
