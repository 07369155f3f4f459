"""`stoilo task`: submit a source file, watch and cancel tasks.

Everything goes through the client library; nothing of the server is imported here.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from stoilo.cli.output import CONNECTION, JSON, now, render_day, render_table, say
from stoilo.cli.shell import complete_flavor, complete_level, complete_task
from stoilo.cli.sources import read_as_task, read_kwargs, read_program
from stoilo.client.capture.modules import Captured
from stoilo.client.connection import Connection, connect
from stoilo.client.options import TaskOptions
from stoilo.client.results import SystemError as TaskSystemError
from stoilo.client.results import TaskResult, TimedOut, UserError
from stoilo.client.status import TaskStatus
from stoilo.client.task import StagedTask, SubmittedTask
from stoilo.client.task import submit as submit_task
from stoilo.client.wire import SourceRefused
from stoilo.core.codec.json_values import render_json_value
from stoilo.core.codec.nodes import to_node
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import StoiloError, UnreachableError, UsageError, show_plainly
from stoilo.core.types import TaskState
from stoilo.policies.entry import last_function

AnswerT = TypeVar("AnswerT")
POLL_S = 0.5
CLEAR = "\r\x1b[K"  # back to the line's begin, and empty it

timeout_option = click.option(
    "--timeout", type=click.FloatRange(min=0), help="Give up waiting after so many s."
)


EXIT_CODES = {TaskState.SUCCEEDED.value: 0, TaskState.USER_ERROR.value: 5}
"""By final state; 1 for every other: no quorum, cancelled, expired."""


@click.group()
def task() -> None:
    """Submit, watch and cancel tasks.

    Exit codes: 0 a value, 5 the task's own error, 1 no quorum, cancelled or expired,
    3 refused by the gate, 6 given up waiting, 7 server not reachable.
    Example: stoilo task submit task.py --kwargs '{"x": 2}' --wait --json
    """


def _run(
    connection: str | None, work: Callable[[Connection], Awaitable[AnswerT]]
) -> AnswerT:
    async def inner() -> AnswerT:
        async with connect(connection) as open_connection:
            return await work(open_connection)

    return asyncio.run(inner())


@task.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--entry", default="", help="Function to call; else the last def.")
@click.option("--kwargs", default="{}", help="The function's dict: JSON or @FILE.")
@click.option(
    "--level", default="", help="Lowest level wanted.", shell_complete=complete_level
)
@click.option(
    "--flavor",
    default="",
    help="Dependency set, by name or id.",
    shell_complete=complete_flavor,
)
@click.option("--label", default="", help="Your own words for it.")
@click.option(
    "--topic", "topics", multiple=True, help="What it is about, for volunteers."
)
@click.option(
    "--publish-source", is_flag=True, help="The project may publish the source."
)
@click.option("--key", default="", help="Idempotency key; repeats find the same task.")
@click.option("--wait", is_flag=True, help="Wait for the outcome.")
@timeout_option
@CONNECTION
@JSON
def submit(  # noqa: PLR0917 - click passes options by name
    file: Path,
    entry: str,
    kwargs: str,
    level: str,
    flavor: str,
    label: str,
    topics: tuple[str, ...],
    publish_source: bool,
    key: str,
    wait: bool,
    timeout: float | None,
    connection: str | None,
    as_json: bool,
) -> int:
    """Send FILE to the server, without its script block; prints the task's id.

    With --wait also its outcome, as `stoilo task status --wait` does.
    """
    source = read_as_task(read_program(str(file)).encode()).decode()
    captured = Captured(
        task_module=source,
        entry=entry or _find_entry(source),
        validator_module="",
        init_entry="",
        compare_entry="",
        arguments=encode(read_kwargs(kwargs)),
        blobs=(),
    )
    options = TaskOptions(
        level=level,
        flavor=flavor,
        label=label,
        topics=topics,
        publish_source=publish_source,
    )

    async def work(server: Connection) -> int:
        submitted = await _submit(server, captured, options, key)
        if not wait:
            say({"task_id": submitted.task_id}, submitted.task_id, as_json=as_json)
            return 0
        if not as_json:
            sys.stderr.write(f"{submitted.task_id}\n")
        return await _finish(submitted, timeout, as_json)

    try:
        return _run(connection, work)
    except SourceRefused as error:
        _show_refusal(error, as_json)


async def _submit(
    server: Connection, captured: Captured, options: TaskOptions, key: str
) -> SubmittedTask[Any]:
    session = server.session
    if key:
        return await submit_task(session, captured, options, key)
    return await StagedTask(session, captured, options).submit()


def _find_entry(source: str) -> str:
    try:
        name = last_function(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError("STO-U003", f"the file is not Python: {error}") from error
    if not name:
        raise UsageError("STO-U003", "the file has no function; see --entry")
    return name


def _show_refusal(error: SourceRefused, as_json: bool) -> NoReturn:
    if not as_json:
        for finding in error.findings:
            sys.stderr.write(
                f"{finding.line}:{finding.column}: {finding.message} "
                f"[{finding.code}]\n  {finding.hint}\n"
            )
    raise error


async def _finish(
    submitted: SubmittedTask[Any],
    limit_s: float | None,
    as_json: bool,
    *,
    follow: bool = False,
) -> int:
    waiting = asyncio.ensure_future(submitted.result(limit_s))
    if follow:
        await _show_changes(submitted, waiting, as_json)
    elif not as_json and sys.stderr.isatty():
        await _show_progress(submitted, waiting)
    outcome = await waiting
    if isinstance(outcome, TimedOut):
        raise outcome
    record = render_record(await submitted.status(), outcome)
    failed = isinstance(outcome, UserError | TaskSystemError)
    say(record, str(outcome) if failed else repr(outcome), as_json=as_json)
    return EXIT_CODES.get(record["state"], 1)


def render_record(status: TaskStatus, outcome: TaskResult) -> dict[str, Any]:
    """Return the one object of a final task; every key is always there."""
    record: dict[str, Any] = {
        "task_id": status.task_id,
        "state": status.state.value,
        "value": None,
        "error": None,
        "error_type": None,
        "code": None,
        "output": status.output,
    }
    match outcome:
        case UserError():
            failure = {"error": outcome.text, "error_type": outcome.exception_type}
            return record | failure | {"code": outcome.code or None}
        case TaskSystemError():
            return record | {"error": outcome.text, "code": outcome.code or None}
        case _:
            return record | {"value": render_json_value(to_node(outcome))}


async def _show_progress(
    submitted: SubmittedTask[Any], waiting: asyncio.Future[Any]
) -> None:
    """Say in one line of a terminal what a task waits for, and since when."""
    began = time.monotonic()
    while not waiting.done():
        try:
            status = await submitted.status()
            text = status.explanation or status.state.value
        except StoiloError as error:
            text = error.message
        text = f"{time.monotonic() - began:.0f} s: {show_plainly(text)}"
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"{CLEAR}{' '.join(text.split())[:width]}", err=True, nl=False)
        await asyncio.wait([waiting], timeout=POLL_S)
    click.echo(CLEAR, err=True, nl=False)


async def _show_changes(
    submitted: SubmittedTask[Any], waiting: asyncio.Future[Any], as_json: bool
) -> None:
    """Print a line whenever the task's status is another one, until it is final."""
    before: TaskStatus | None = None
    while not waiting.done():
        status = before
        with contextlib.suppress(UnreachableError):  # `waiting` outlasts it
            status = await submitted.status()
        if status is not None and status != before and not status.state.final:
            copies = [f"{one.state} {one.outcome}".strip() for one in status.copies]
            record = {
                "time": now(),
                "state": status.state.value,
                "explanation": status.explanation,
                "cpu_s": status.cpu_s,
                "copies": copies,
            }
            text = f"{render_day(now(), '%H:%M:%S')}  {status.state.value}"
            text += f"  {status.explanation or ', '.join(copies)}"
            say(record, text.rstrip(), as_json=as_json)
        before = status
        await asyncio.wait([waiting], timeout=POLL_S)


@task.command()
@click.argument("task_id", shell_complete=complete_task)
@click.option("--wait", is_flag=True, help="Wait for the outcome, and print that.")
@click.option(
    "--follow",
    is_flag=True,
    help="As --wait, and a line at each change; with --json one object each.",
)
@timeout_option
@CONNECTION
@JSON
def status(
    task_id: str,
    *,
    wait: bool,
    follow: bool,
    timeout: float | None,
    connection: str | None,
    as_json: bool,
) -> int:
    """Say where TASK_ID is and why, with its copies; or wait for its outcome.

    JSON of an outcome: task_id, state, value, error, error_type, code, output; null where
    unused. Of a change: time, state, explanation, cpu_s (as volunteers claim it), copies.
    """

    async def work(server: Connection) -> int:
        if wait or follow:
            submitted = server.restore_task(task_id)
            return await _finish(submitted, timeout, as_json, follow=follow)
        found = await server.restore_task(task_id).status()
        lines = [f"{found.task_id}  {found.state.value}  level {found.level}"]
        if found.explanation:
            lines.append(found.explanation)
        if found.cpu_s:
            lines.append(f"volunteers' processor time {found.cpu_s:.1f} s, as they say")
        if found.logged:
            lines.append(f"log index {found.log_index}, attempt {found.attempt}")
        lines += [
            f"  {copy.name}  {copy.state} {copy.outcome} {copy.code}".rstrip()
            for copy in found.copies
        ]
        record = asdict(found) | {"cpu_s": found.cpu_s}
        say(record, "\n".join(lines), as_json=as_json)
        return 0

    return _run(connection, work)


@task.command(name="list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(["open", *TaskState])
)
@click.option("--label", default="", help="Only tasks with exactly this label.")
@click.option("--limit", default=100, type=click.IntRange(1, 1000), show_default=True)
@CONNECTION
@JSON
def list_tasks(
    states: tuple[str, ...],
    label: str,
    limit: int,
    connection: str | None,
    as_json: bool,
) -> int:
    """List your tasks at the server, newest first; --state open: those under way."""
    wanted = set(states) - {"open"}
    if "open" in states:
        wanted |= {state.value for state in TaskState if not state.final}

    async def work(server: Connection) -> int:
        found = await server.list_tasks(states=wanted, label=label, limit=limit)
        rows = [
            (
                one.task_id,
                f"{datetime.fromtimestamp(one.created_at, UTC):%Y-%m-%d %H:%M}",
                one.state.value,
                one.level,
                one.label,
            )
            for one in found
        ]
        text = render_table(rows) if rows else ""
        say({"tasks": list(map(asdict, found))}, text, as_json=as_json)
        return 0

    return _run(connection, work)


@task.command()
@click.argument("task_id", shell_complete=complete_task)
@CONNECTION
@JSON
def cancel(task_id: str, connection: str | None, as_json: bool) -> int:
    """Cancel TASK_ID unless it is final already."""

    async def work(server: Connection) -> int:
        submitted = server.restore_task(task_id)
        await submitted.cancel()
        state = (await submitted.status()).state
        record = {"task_id": task_id, "state": state.value}
        say(record, state.value, as_json=as_json)
        return 0

    return _run(connection, work)
