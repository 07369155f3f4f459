"""Where a task is: as the server says, in words and as a small table."""

from __future__ import annotations

import asyncio
import html
import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.types import TaskState

if TYPE_CHECKING:
    from stoilo.client.chunks import MapProgress

_RUNNING = "in_progress"  # a copy on a host


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """One copy of a task at a volunteer (BOINC's result); times in s since 1970.

    As its host claims it, 0 where it does not say: `cpu_s` is the processor time (so far),
    s; `fraction_done` how far it is, 0 to 1.
    """

    name: str
    state: str
    outcome: str
    code: str
    sent_at: int
    received_at: int
    cpu_s: float = 0.0
    fraction_done: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Where a task is.

    Attributes:
        task_id: its id.
        state: see `stoilo.core.types.TaskState`.
        explanation: why it waits, one sentence; empty when it does not.
        level: the level the gate chose.
        attempt: number of the present attempt, from 1.
        logged: whether its admission is in the audit log.
        log_index: its leaf, when logged.
        created_at: s since 1970.
        copies: what volunteers do with it.
        output: what the accepted run printed.
        page: address of its page in the console; empty where it is not known.
    """

    task_id: str
    state: TaskState
    explanation: str
    level: str
    attempt: int
    logged: bool
    log_index: int
    created_at: int
    copies: tuple[CopyStatus, ...]
    output: str
    page: str = ""

    @property
    def cpu_s(self) -> float:
        """Processor time of all its copies as their hosts claim it, s; 0: none says it."""
        return sum(copy.cpu_s for copy in self.copies)

    @property
    def fraction_done(self) -> float:
        """How far the copy that is furthest is as its host claims it, 0 to 1; 0: unsaid."""
        running = [copy.fraction_done for copy in self.copies if copy.state == _RUNNING]
        return 0.0 if self.state.final else max(running, default=0.0)

    def _repr_html_(self) -> str:
        """Return a small static table."""
        return status_html(self)


@dataclass(frozen=True, slots=True)
class ListedTask:
    """One row of `Connection.list_tasks`; times in s since 1970."""

    task_id: str
    state: TaskState
    level: str
    label: str
    map_items: int  # 0 for one call
    created_at: int
    finished_at: int  # 0: it is not


def read_listed(row: pb.ListedTask) -> ListedTask:
    """Return one row of a list (untrusted text, shown escaped)."""
    return ListedTask(
        row.task_id,
        _state_of(row.state),
        row.level,
        row.label,
        row.map_items,
        row.created_at,
        row.finished_at,
    )


def _state_of(said: str) -> TaskState:
    return TaskState(said) if said in set(TaskState) else TaskState.RUNNING


def read_status(answer: pb.PollTaskResponse, page: str = "") -> TaskStatus:
    """Return the status in a poll's answer (untrusted text, shown escaped)."""
    return TaskStatus(
        task_id=answer.task_id,
        state=_state_of(answer.state),
        explanation=answer.explanation,
        level=answer.level,
        attempt=answer.attempt,
        logged=answer.logged,
        log_index=answer.log_index,
        created_at=answer.created_at,
        copies=tuple(map(_read_copy, answer.copies)),
        output=answer.output,
        page=page,
    )


def _read_copy(row: pb.CopyStatus) -> CopyStatus:
    return CopyStatus(
        row.name,
        row.state,
        row.outcome,
        row.code,
        row.sent_at,
        row.received_at,
        row.cpu_s,
        row.fraction_done if 0.0 <= row.fraction_done <= 1.0 else 0.0,
    )


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
    done = f"; about {status.fraction_done:.0%} done" if status.fraction_done else ""
    spent = f"; {status.cpu_s:.1f} s of processor time so far" if status.cpu_s else ""
    more = f"; more at {status.page}" if status.page else ""
    return f"task {status.task_id} {words}{reason}{done}{spent}{more}"


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
        ("processor time", f"{status.cpu_s:.1f} s"),
        ("log", f"leaf {status.log_index}" if status.logged else "not yet"),
    ]
    rows += [
        (f"copy {index}", f"{copy.state} {copy.outcome} {copy.code}".strip())
        for index, copy in enumerate(status.copies)
    ]
    return _table(rows) + link_html(status.page)


BAR = 30  # characters
REDRAW_S = 0.5


def link_html(page: str) -> str:
    """Return a link that leaves the notebook where it is; nothing for no page."""
    if not page:
        return ""
    to = f"href='{html.escape(page)}' target='_blank' rel='noopener'"
    return f"<p><a {to}>Open in the console</a></p>"


def progress_html(counts: MapProgress, page: str) -> str:
    """Return a bar with its text and its page's link, without scripts."""
    bar = f"<progress value='{counts.done}' max='{max(1, counts.total)}'></progress>"
    return f"{bar} {html.escape(str(counts))}{link_html(page)}"


async def show_progress(what: Any) -> None:  # noqa: ANN401 - has progress and _repr_html_
    """Draw something's progress until cancelled: in a notebook's cell, or on a terminal.

    A notebook gets `_repr_html_` and no widgets; another stream the last line only.
    """
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    handle = None
    if hasattr(shell, "kernel"):
        display = importlib.import_module("IPython.display").display
        handle = display(what, display_id=True)
    is_live = handle is not None or sys.stderr.isatty()
    try:
        while True:
            if is_live:
                _draw(what, handle, "\r")
            await asyncio.sleep(REDRAW_S)
    finally:
        _draw(what, handle, "\n")


def _draw(what: Any, handle: Any, end: str) -> None:  # noqa: ANN401 - as above
    if handle is not None:
        handle.update(what)
        return
    counts = what.progress
    filled = "#" * (BAR * counts.done // max(1, counts.total))
    sys.stderr.write(f"[{filled:-<{BAR}}] {counts}{end}")
    sys.stderr.flush()


def source_html(source: str) -> str:
    """Return source text in a folded block."""
    if not source:
        return ""
    return (
        "<details><summary>exact source</summary>"
        f"<pre>{html.escape(source)}</pre></details>"
    )


def task_html(
    task_id: str, status: TaskStatus | None, source: str, page: str = ""
) -> str:
    """Return a task's card."""
    known = status_html(status) if status else ""
    head = known or _table([("task", task_id)]) + link_html(page)
    return head + source_html(source)
