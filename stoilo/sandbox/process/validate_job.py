"""The validator job: one call of the researcher's init or compare function, in the jail.

    {"source", "op": "init" | "compare", "entry", "values": [bytes, …]}
    {"verdict": "true" | "false" | "raised" | "not_bool", "error_text"}

A source that the language layer refuses, or whose module body fails, is "raised": the
researcher's fault either way (design §7). A value that cannot exist here (an array of a
library that this level lacks, an instance of no class) is "false" without a question: that
is its volunteer's fault, and must not end the task.
"""

from __future__ import annotations

import sys
from typing import Any

from stoilo.core.codec import skeleton
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.levels import Level
from stoilo.sandbox.language.output import OutputSink, TaskPrinter
from stoilo.sandbox.language.rules import TASK_MODULE
from stoilo.sandbox.language.runtime import (
    LanguageRuntime,
    prepare_runtime,
    start_item,
    stop_clock,
)
from stoilo.sandbox.process.binder import bind_arguments
from stoilo.sandbox.process.task_job import (
    EndedError,
    call_task,
    captured_output,
    find_entry,
    load_source,
)

_ARITY = {"init": 1, "compare": 2}
_SEED = bytes(32)
_runtimes: list[LanguageRuntime] = []


def prepare(level: Level) -> None:
    """Import and build everything that validators at `level` need (in the zygote)."""
    _runtimes[:] = [prepare_runtime(level)]
    stop_clock()


def run(request: bytes, output: OutputSink) -> bytes:
    """Work on one request (untrusted); return one frame."""
    return skeleton.encode(run_validator(_runtimes[0], request, output))


def run_validator(
    runtime: LanguageRuntime, request: bytes, output: OutputSink
) -> dict[str, Any]:
    """Return the frame of one request, as a node."""
    printer = TaskPrinter(output)
    try:
        with captured_output(printer):
            verdict = _judge(runtime, skeleton.decode(request), printer)
    except EndedError as ended:
        failure = ended.failure
        text = f"{failure.error_type}: {failure.error_text}".removeprefix(": ")
        return {"verdict": "raised", "error_text": text}
    except StoiloError as error:
        return {"verdict": "raised", "error_text": str(error)}
    finally:
        sys.modules.pop(TASK_MODULE, None)
    if type(verdict) is not bool:
        kind = type(verdict)
        owner = "numpy." if kind.__module__ == "numpy" else ""
        text = f"the validator returned a {owner}{kind.__name__[:128]}, not a bool"
        return {"verdict": "not_bool", "error_text": text}
    return {"verdict": "true" if verdict else "false", "error_text": ""}


def _judge(runtime: LanguageRuntime, fields: Any, printer: TaskPrinter) -> object:
    source, entry, values = _parse_request(fields)
    start_item(_SEED, 0, 0)
    module = load_source(runtime, source, printer)
    function = find_entry(module, entry)
    try:
        arguments = [bind_arguments(value, module, runtime) for value in values]
    except Exception:  # noqa: BLE001 - hostile values: whatever they break, they are wrong
        return False
    return call_task(lambda: function(*arguments))


def _parse_request(fields: Any) -> tuple[str, str, list[bytes]]:
    if not isinstance(fields, dict) or set(fields) != {
        "source",
        "op",
        "entry",
        "values",
    }:
        raise TrustError("STO-G120", "a validator request has other fields")
    source, entry, values = fields["source"], fields["entry"], fields["values"]
    arity = _ARITY.get(fields["op"]) if type(fields["op"]) is str else None
    if type(source) is not str or type(entry) is not str or type(values) is not list:
        raise TrustError("STO-G120", "a validator request's fields are of other types")
    if arity != len(values):
        raise TrustError("STO-G120", "a validator takes another number of values")
    if not all(isinstance(value, bytes | memoryview) for value in values):
        raise TrustError("STO-G120", "a validator takes encoded values")
    return source, entry, [bytes(value) for value in values]
