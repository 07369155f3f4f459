"""`print` of a task: bounded, and written through so that it survives a kill."""

from __future__ import annotations

import sys
from typing import Any, Protocol

__all__ = [
    "OutputSink",
    "TaskPrinter",
    "TextBuffer",
    "redirect_output",
    "restore_output",
]

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
