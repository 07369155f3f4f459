"""One run, from source text to `RunOutcome`, through both layers or the kernel layer alone.

The parent decodes what the jail answered with the strict codec and checks every field; it
calls nothing that the task wrote.
"""

from __future__ import annotations

import dataclasses
import math
import re
import threading
from dataclasses import dataclass
from typing import Any

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import DATA_BOUNDS, Node
from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.core.levels import Level
from stoilo.core.limits import BOUNDS, RunLimits
from stoilo.core.types import RunLayer, RunOutcome, RunStatus
from stoilo.sandbox.kernel.building import Denied
from stoilo.sandbox.process.channel import PROBE_JOB, TASK_JOB
from stoilo.sandbox.process.report import LIMIT_CODES, JailReport, JailStatus
from stoilo.sandbox.process.selection import narrow_level
from stoilo.sandbox.process.supervisor import Jail

__all__ = [
    "TaskRequest",
    "choose_limits",
    "encode_probe",
    "probe_source",
    "read_items",
    "read_outcome",
    "read_probe",
    "read_refusal",
    "run_source",
    "run_task",
]

NO_ENTRY = "STO-S031"
OUT_OF_MEMORY = LIMIT_CODES["memory_bytes"]
_TEXT_CHARS = 4000
_OPTIONAL = frozenset({"tell_ms", "most_state", "step", "state"})
_TOLD_BY_CHILD = frozenset(
    {
        (RunStatus.USER_ERROR, RunLayer.LANGUAGE),
        (RunStatus.USER_ERROR, RunLayer.RESULT),
        (RunStatus.REFUSED, RunLayer.GATE),
        (RunStatus.REFUSED, RunLayer.LANGUAGE),
    }
)
"""Endings that a child may report of itself; limits and kills are the supervisor's to tell.

But one: nobody outside sees an allocation fail. A lie about it gains nothing, because
every program can use up its memory.
"""
_TOLD_MEMORY = (RunStatus.KILLED, RunLayer.LIMITS, OUT_OF_MEMORY)
_CHILD_CODE = re.compile(r"(STO-([DG][0-9]{3}|S031))?")
_CRASHES = {JailStatus.CRASHED: RunStatus.USER_ERROR}


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """What `stoilo.sandbox.process.task_job` is asked to do; all of it untrusted.

    Attributes:
        source: text of the task module.
        entry: function to call, empty for the last ``def`` of the module body.
        arguments: encoded dict that the function gets.
        blobs: encoded values that the arguments refer to.
        seed: hex digits; the seed of every generator (I7).
        now: what the clock says, s since 1970 in UTC.
        items: how many calls share the run, 0 for a single one.
        tell_ms: how often at most the run tells of its progress, -1: never.
        most_state: the largest state that is told, bytes.
        step: after how many yielded states it goes on.
        state: the last of them, encoded (`Progress.state`); empty: from the beginning.
    """

    source: str
    entry: str
    arguments: bytes
    blobs: tuple[bytes, ...] = ()
    seed: str = "00" * 32
    now: int = 0
    items: int = 0
    tell_ms: int = -1
    most_state: int = BOUNDS.value_bytes
    step: int = 0
    state: bytes = b""

    def encode(self) -> bytes:
        """Return the request as an encoded skeleton; only those that tell are longer."""
        fields: dict[Any, Any] = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _OPTIONAL or getattr(self, field.name) != field.default
        }
        return skeleton.encode(fields | {"blobs": list(self.blobs)})


def choose_limits(level: Level, wall_s: float | None) -> RunLimits:
    """Return the level's defaults, with another wall time up to its maximum, s."""
    limits = level.default_limits()
    if wall_s is None:
        return limits
    most = level.max_limits().wall_s
    return dataclasses.replace(limits, wall_s=min(math.ceil(wall_s), most))


def _from_report(report: JailReport) -> RunOutcome:
    """Return the outcome of a run that did not finish."""
    if report.blames_host and report.status is JailStatus.CRASHED:
        raise InternalError(report.code, report.detail)
    status = _CRASHES.get(report.status) or RunStatus(report.status.value)
    return _complete(
        RunOutcome(
            status=status,
            error=report.detail,
            code=report.code,
            layer=report.layer,
            limit=report.limit,
        ),
        report,
    )


def _complete(outcome: RunOutcome, report: JailReport) -> RunOutcome:
    """Add what the parent itself knows."""
    return msgspec.structs.replace(
        outcome,
        output=report.output.decode("utf-8", "replace"),
        usage=report.usage,
        layers=report.layers,
    )


def _malformed(detail: str) -> RunOutcome:
    return RunOutcome(
        status=RunStatus.USER_ERROR,
        error=f"what came out of the jail is not a result: {detail}",
        code="STO-S021",
        layer=RunLayer.RESULT,
    )


def _memory_ending() -> RunOutcome:
    return RunOutcome(
        status=RunStatus.KILLED,
        error="the limit memory_bytes was reached",
        code=OUT_OF_MEMORY,
        layer=RunLayer.LIMITS,
        limit="memory_bytes",
    )


def _text(fields: dict[Any, Any], name: str) -> str:
    value = fields.get(name)
    return value[:_TEXT_CHARS] if isinstance(value, str) else ""


def _describe(fields: dict[Any, Any]) -> str:
    kind, text = _text(fields, "error_type"), _text(fields, "error_text")
    return f"{kind}: {text}" if kind and text else kind or text


def _read_value(fields: dict[Any, Any]) -> bytes:
    """Return the encoded value after the strict codec has accepted it."""
    value = fields.get("value")
    if not isinstance(value, bytes | memoryview):
        raise TrustError("STO-D002", "a result without a value")
    skeleton.decode(value, DATA_BOUNDS)
    return bytes(value)


def _read_fields(fields: Node) -> RunOutcome:
    """Turn one item of a task frame (untrusted) into an outcome."""
    if not isinstance(fields, dict):
        return _malformed("not a dict")
    try:
        status = RunStatus(_text(fields, "status"))
        if status is RunStatus.OK:
            return RunOutcome(status=status, value=_read_value(fields))
        layer = RunLayer(_text(fields, "layer") or RunLayer.LANGUAGE)
    except (ValueError, TrustError) as error:
        return _malformed(str(error)[:_TEXT_CHARS])
    code = _text(fields, "code")
    if (status, layer, code) == _TOLD_MEMORY:
        return _memory_ending()
    if (status, layer) not in _TOLD_BY_CHILD or not _CHILD_CODE.fullmatch(code):
        return _malformed("it tells of an ending that only the supervisor sees")
    return RunOutcome(status=status, error=_describe(fields), code=code, layer=layer)


def _decode_frame(report: JailReport) -> Node:
    try:
        return skeleton.decode(report.frame)
    except TrustError as error:
        return str(error)


def read_outcome(report: JailReport) -> RunOutcome:
    """Return the outcome of a single call from what the jail reported.

    Raises:
        InternalError: ``STO-S005`` the zygote died, ``STO-S007`` the child was killed
            from outside, ``STO-S008`` cancelled: nothing is known about the task.
    """
    if report.status is not JailStatus.FINISHED:
        return _from_report(report)
    return _complete(_read_fields(_decode_frame(report)), report)


def read_refusal(report: JailReport) -> str:
    """Return the code with which a child (hostile) says that it ran nothing."""
    frame = _decode_frame(report) if report.status is JailStatus.FINISHED else None
    fields = frame if isinstance(frame, dict) else {}
    refused = _text(fields, "status") == RunStatus.REFUSED
    return _text(fields, "code") if refused else ""


def read_items(report: JailReport, items: int) -> tuple[RunOutcome, ...]:
    """Return one outcome for each of the `items` calls that shared the run.

    A run that ended as a whole (killed, refused) gives every item the same outcome.
    """
    if report.status is not JailStatus.FINISHED:
        return (_from_report(report),) * items
    frame = _decode_frame(report)
    rows = frame.get("items") if isinstance(frame, dict) else None
    if isinstance(rows, list) and len(rows) == items:
        return tuple(_complete(_read_fields(row), report) for row in rows)
    return (_complete(_read_fields(frame), report),) * items


def run_task(
    jail: Jail, request: TaskRequest, limits: RunLimits, wall_s: float | None = None
) -> RunOutcome:
    """Run one call in a warm `jail` made for `TASK_JOB`."""
    return read_outcome(jail.run(request.encode(), limits, wall_s))


def _run_alone(
    level: Level, request: TaskRequest, limits: RunLimits, wall_s: float | None
) -> tuple[RunOutcome, bool]:
    """Run in a jail of its own; also say whether a library missed a module there."""
    jail = Jail(level, TASK_JOB)
    try:
        report = jail.run(request.encode(), limits, wall_s)
    finally:  # the answer does not wait until the kernel has taken all of it down
        threading.Thread(target=jail.close).start()
    frame = _decode_frame(report) if report.status is JailStatus.FINISHED else None
    missed = isinstance(frame, dict) and frame.get("late_imports") is True
    return read_outcome(report), missed


def run_source(
    source: str,
    entry: str | None,
    kwargs: Node,
    level: Level,
    limits: RunLimits | None = None,
    *,
    wall_s: float | None = None,
    now: int = 0,
) -> RunOutcome:
    """Run a function of `source` through both layers, in a jail of its own.

    Args:
        source: module text (untrusted).
        entry: function name, None for the last ``def`` of the module body.
        kwargs: the one dict that the function gets.
        level: what it may do.
        limits: None for the level's defaults.
        wall_s: elapsed time, s; None for the limit's.
        now: what the clock says inside, s since 1970 in UTC.

    Raises:
        UsageError: ``STO-S031`` there is no such function.
        PolicyRefusal: ``STO-S001``, ``STO-S002`` this host cannot make the jail.
        InternalError: the jail broke, or the zygote died.
    """
    request = TaskRequest(source, entry or "", skeleton.encode(kwargs), now=now)
    limits = limits or choose_limits(level, wall_s)
    narrow = narrow_level(level, source, request.arguments, limits.threads)
    outcome, missed = _run_alone(narrow, request, limits, wall_s)
    if missed and narrow is not level:
        outcome, _ = _run_alone(level, request, limits, wall_s)
    if outcome.code == NO_ENTRY:
        raise UsageError(NO_ENTRY, outcome.error or "there is no function to run")
    return outcome


# ------------------------------------------------------------------ the kernel layer alone


def read_probe(report: JailReport) -> RunOutcome:
    """Turn a probe's report into an outcome; what it printed is its value."""
    if report.code == "STO-S022" and "status 0" in report.detail:
        outcome = RunOutcome(status=RunStatus.OK)  # os._exit(0) is the program's right
    elif report.status is not JailStatus.FINISHED:
        outcome = _from_report(report)
    else:
        outcome = _read_probe_frame(_decode_frame(report))
    outcome = _complete(outcome, report)
    return msgspec.structs.replace(outcome, value=skeleton.encode(outcome.output))


def _read_probe_frame(frame: Node) -> RunOutcome:
    fields = frame if isinstance(frame, dict) else {}
    code, status = _text(fields, "code"), _text(fields, "status")
    if status == "ok":
        return RunOutcome(status=RunStatus.OK)
    if status != "failed":
        return _malformed("not a probe's answer")
    if code == OUT_OF_MEMORY:
        return _memory_ending()
    refused = code == "STO-S026"
    return RunOutcome(
        status=RunStatus.REFUSED if refused else RunStatus.USER_ERROR,
        error=_describe(fields),
        code=code,
        layer=RunLayer.GATE if refused else RunLayer.LANGUAGE,
    )


def encode_probe(source: str, preload: tuple[str, ...] = ()) -> bytes:
    """Return a request for a jail made for `PROBE_JOB`."""
    return skeleton.encode({"source": source, "preload": list(preload)})


def probe_source(
    source: str,
    level: Level,
    *,
    preload: tuple[str, ...] = (),
    limits: RunLimits | None = None,
    wall_s: float | None = None,
    denied: Denied = Denied.KILL,
) -> RunOutcome:
    """Run a plain program through the kernel layer alone.

    Args:
        source: program text (untrusted), run as ``__main__``.
        level: whose system calls and limits are in force.
        preload: modules imported before the jail closes; the level's list is not used.
        limits: None for the level's defaults.
        wall_s: elapsed time, s.
        denied: whether a call outside the level ends the program, or fails with EPERM so
            that it goes on to its next one.

    Raises:
        UsageError: ``STO-S030`` a module to preload cannot be imported.
        PolicyRefusal: ``STO-S001``, ``STO-S002`` this host cannot make the jail.
    """
    bare = msgspec.structs.replace(level, preload=())
    request = encode_probe(source, preload)
    with Jail(bare, PROBE_JOB, preload=preload, denied=denied) as jail:
        report = jail.run(request, limits or choose_limits(level, wall_s), wall_s)
    return read_probe(report)
