"""The validator job: one call of the researcher's init or compare function, in the jail.

It answers a `ValidatorRequest`:

    {"verdict": "true" | "false" | "raised" | "not_bool", "error_text"}

A source that the language layer refuses, or whose module body fails, is "raised": the
researcher's fault either way (design §7). A value that cannot exist here (an array of a
library that this level lacks, an instance of no class) is "false" without a question: that
is its volunteer's fault, and must not end the task.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.errors import StoiloError, TrustError
from stoilo.core.levels import Level
from stoilo.core.libraries import use_types
from stoilo.sandbox.language.rules import TASK_MODULE
from stoilo.sandbox.language.runtime import (
    LanguageRuntime,
    OutputSink,
    TaskPrinter,
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
    read_request,
)

_ARITY = {"init": 1, "compare": 2}
_SEED = bytes(32)
_runtimes: list[LanguageRuntime] = []


class ValidatorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which function is asked about which values; all of it untrusted."""

    source: str  # text of the validator module
    op: Literal["init", "compare"]
    entry: str  # the function's name
    values: tuple[bytes, ...]  # encoded; one for `init`, two for `compare`


def prepare(level: Level) -> None:
    """Import and build everything that validators at `level` need (in the zygote)."""
    use_types(level.travelling_types)
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
            asked = read_request(request, ValidatorRequest)
            verdict = _judge(runtime, asked, printer)
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


def _judge(
    runtime: LanguageRuntime, request: ValidatorRequest, printer: TaskPrinter
) -> object:
    if len(request.values) != _ARITY[request.op]:
        raise TrustError("STO-G120", "a validator takes another number of values")
    start_item(_SEED, 0, 0)
    module = load_source(runtime, request.source, printer)
    function = find_entry(module, request.entry)
    try:
        arguments = [bind_arguments(value, module, runtime) for value in request.values]
    except Exception:  # noqa: BLE001 - hostile values: whatever they break, they are wrong
        return False
    return call_task(lambda: function(*arguments))
