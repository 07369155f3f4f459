"""Plain text and small static HTML for notebooks: escaped, no scripts, no widgets."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from stoilo.core.types import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stoilo.client.task import TaskStatus

__all__ = ["explain", "source_html", "status_html", "task_html"]

_WORDS = {
    TaskState.ADMITTING: "is being checked, logged and signed",
    TaskState.WAITING_REVIEW: "waits for a reviewer to sign",
    TaskState.RUNNING: "waits for volunteers or runs",
    TaskState.SUCCEEDED: "finished: enough volunteers agreed",
    TaskState.USER_ERROR: "finished: the function raised",
    TaskState.SYSTEM_ERROR: "finished without a quorum",
    TaskState.EXPIRED: "expired before it was finished",
    TaskState.CANCELLED: "was cancelled",
}


def explain(status: TaskStatus) -> str:
    """Return one sentence about a task."""
    words = _WORDS[status.state]
    reason = f": {status.explanation}" if status.explanation else ""
    return f"task {status.task_id} {words}{reason}"


def _table(rows: Iterable[tuple[str, object]]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def status_html(status: TaskStatus) -> str:
    """Return a table of a status."""
    rows: list[tuple[str, object]] = [
        ("task", status.task_id),
        ("state", status.state.value),
        ("why", status.explanation or _WORDS[status.state]),
        ("level", status.level),
        ("attempt", status.attempt),
        ("log", f"leaf {status.log_index}" if status.logged else "not yet"),
    ]
    rows += [
        (f"copy {index}", f"{copy.state} {copy.outcome} {copy.code}".strip())
        for index, copy in enumerate(status.copies)
    ]
    return _table(rows)


def source_html(source: str) -> str:
    """Return source text in a folded block."""
    if not source:
        return ""
    return (
        "<details><summary>exact source</summary>"
        f"<pre>{html.escape(source)}</pre></details>"
    )


def task_html(task_id: str, status: TaskStatus | None, source: str) -> str:
    """Return a task's card."""
    head = status_html(status) if status else _table([("task", task_id)])
    return head + source_html(source)
