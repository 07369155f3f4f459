"""What leaves a task as text: what it prints, and how its exception is told."""

from __future__ import annotations

import re
import sys
from typing import Any, Protocol

import msgspec

from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.types import RunLayer, RunStatus

CUT_NOTE = "\n[output cut here]\n"


class OutputSink(Protocol):
    """Where printed text goes; the supervisor's output pipe in the jail."""

    def write(self, text: str) -> object:
        """Take `text`."""


class TextBuffer:
    """An `OutputSink` in memory, for runs without a jail."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        """Append `text`."""
        self.text += text
        return len(text)


_redirected: list[tuple[Any, Any]] = []  # where the task prints to, and did before


def redirect_output(target: Any) -> None:
    """Let the task, and what prints for it, print to `target`, an object with ``write``."""
    _redirected.append((target, sys.stdout))
    sys.stdout = target


def restore_output() -> None:
    """Undo the last `redirect_output`."""
    if _redirected:
        _, sys.stdout = _redirected.pop()


class TaskPrinter:
    """The task's ``print`` and warnings.

    Attributes:
        limit: characters after which nothing more is passed on, None to leave the bound
            to the sink (the supervisor kills the run there and says so).
    """

    def __init__(self, sink: OutputSink, limit: int | None = None) -> None:
        self._sink = sink
        self._left = limit

    def write(self, text: str) -> None:
        """Pass on `text`, cut at the limit."""
        if self._left is None:
            self._sink.write(text)
            return
        if self._left <= 0:
            return
        self._sink.write(text[: self._left])
        self._left -= len(text)
        if self._left <= 0:
            self._sink.write(CUT_NOTE)

    def print(
        self,
        *values: object,
        sep: str | None = None,
        end: str | None = None,
        file: object = None,
        flush: bool = False,
    ) -> None:
        """``print``; `file` is an object with ``write`` (io.StringIO), `flush` is moot."""
        del flush
        for name, text in (("sep", sep), ("end", end)):
            if text is not None and not isinstance(text, str):
                raise TypeError(
                    f"{name} must be None or a string, not {type(text).__name__}"
                )
        line = str.join(" " if sep is None else sep, map(str, values))
        line = "".join((line, "\n" if end is None else end))  # exact text in any case
        if file is None and _redirected:
            file = _redirected[-1][0]
        if file is None:
            self.write(line)
        else:
            file.write(line)  # type: ignore[attr-defined]  # AttributeError is the task's

    def show_warning(
        self, message: object, category: type, *_place: object, **_more: object
    ) -> None:
        """``warnings.showwarning`` without the path and line that stock prints."""
        self.write(f"{category.__name__}: {message}\n")

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


# How a task's exception is told: type and text, bounded, free of paths and user names


OUT_OF_MEMORY = "STO-S013"

TEXT_CHARS = 2000
TYPE_CHARS = 128
_GUARD_CODE = r"STO-G1[0-9]{2}"
_PATH = r"(?<![\w./:])(?:/(?:[\w.+@~-]+/)+[\w.+@~-]*|[A-Za-z]:\\[^\s'\"]+|~/[^\s'\"]+)"


class Failure(msgspec.Struct, frozen=True):
    """Why a run gave no value, in the terms of design §7."""

    status: RunStatus  # refused, user_error or killed
    layer: RunLayer  # who decided
    code: str  # stable code
    error_type: str  # name of the exception's class, empty for a refusal
    error_text: str  # what it said


def scrub_paths(text: str) -> str:
    """Return `text`, as it can travel, with every absolute path replaced by its last part.

    Lone surrogates are spelled out: a frame with one could not be written, and the run would
    seem to have ended by itself.
    """

    def keep_name(match: re.Match[str]) -> str:
        return re.split(r"[/\\]", match[0].rstrip("/"))[-1] or "…"

    sound = text.encode("utf-8", "backslashreplace").decode()
    return re.sub(_PATH, keep_name, sound)


def _type_name(error: BaseException) -> str:
    name = str.__str__(type(error).__name__)[:TYPE_CHARS]
    return name.encode("utf-8", "backslashreplace").decode()[:TYPE_CHARS]


def _text_of(error: BaseException) -> str:
    # ``__str__`` may be the task's own code: what it does or returns is caught, cut, scrubbed.
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - the task's __str__ may do anything
        return f"(its text raised {_type_name(second)})"
    return scrub_paths(str.__str__(text)[: 2 * TEXT_CHARS])[:TEXT_CHARS]


def _guard_code(error: PolicyRefusal) -> str:
    # A task may have caught, changed and raised the error again: only an exact code counts.
    code = error.args[0] if error.args else None
    if type(code) is str and re.fullmatch(_GUARD_CODE, code):
        return code
    return "STO-G101"


def _guard_text(error: PolicyRefusal) -> str:
    # Only what are still exact strings: the task may have put its own objects in their place.
    parts = [part for part in error.args[1:3] if type(part) is str and part]
    return scrub_paths(": ".join(parts))[:TEXT_CHARS]


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether `error` is the interpreter's own or numpy's, by exact type.

    A class of a task may have any name and any base.
    """
    arrays = sys.modules.get("numpy._core._exceptions")
    known = (MemoryError, getattr(arrays, "_ArrayMemoryError", MemoryError))
    return type(error) in known


def describe_exception(error: BaseException) -> Failure:
    """Return how `error`, which reached the top of a task, is reported."""
    if is_out_of_memory(error):
        return Failure(
            RunStatus.KILLED,
            RunLayer.LIMITS,
            OUT_OF_MEMORY,
            "MemoryError",
            "out of memory",
        )
    if isinstance(error, PolicyRefusal):
        return Failure(
            RunStatus.REFUSED,
            RunLayer.LANGUAGE,
            _guard_code(error),
            "",
            _guard_text(error),
        )
    return Failure(
        RunStatus.USER_ERROR,
        RunLayer.LANGUAGE,
        "STO-G200",
        _type_name(error),
        _text_of(error),
    )


def describe_refusal(error: StoiloError) -> Failure:
    """Return how a source or argument that never ran is reported."""
    text = f"{error.message}: {error.hint}" if error.hint else error.message
    return Failure(RunStatus.REFUSED, RunLayer.GATE, error.code, "", text)


def describe_result(error: StoiloError | TrustError) -> Failure:
    """Return how a returned value that cannot be encoded is reported."""
    return Failure(
        RunStatus.USER_ERROR,
        RunLayer.RESULT,
        error.code,
        "",
        scrub_paths(error.message),
    )
