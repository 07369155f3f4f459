"""The task job: compile, load, bind, call, encode; all of it inside the jail.

The request is a `TaskRequest`, the frame an encoded skeleton:

    {"status", "value", "error_type", "error_text", "calls", "code", "layer",
     "late_imports"}

With ``items`` > 0 the arguments are a list of that many dicts and the frame is
``{"items": [frame, …]}``; every item starts with its own seed. A failure before the first
call is one plain frame.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.codec.reader import DATA_BOUNDS
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.levels import Level
from stoilo.core.libraries import use_types
from stoilo.core.types import RunStatus
from stoilo.sandbox.language.rules import TASK_MODULE
from stoilo.sandbox.language.runtime import (
    LATE_IMPORTS,
    LanguageRuntime,
    OutputSink,
    TaskPrinter,
    prepare_runtime,
    start_item,
    start_step,
    stop_clock,
)
from stoilo.sandbox.language.transformer import compile_source
from stoilo.sandbox.process.binder import (
    Failure,
    bind_arguments,
    describe_exception,
    describe_refusal,
    describe_result,
    encode_result,
)
from stoilo.sandbox.process.channel import (
    UNREADABLE_STATE,
    Progress,
    TaskRequest,
    Teller,
    write_progress,
)

FRACTION = "fraction_done"
_GENERATOR = 0x20  # CO_GENERATOR of `inspect`, which a zygote does not load


class Steps(msgspec.Struct, frozen=True):
    """From where a run goes on, and who is told."""

    step: int = 0  # how many states were yielded before
    state: object = None  # the last of them, None before the first
    teller: Teller | None = None  # gets what is yielded, None: nobody


def yields_states(function: Callable[..., Any]) -> bool:
    """Whether calling `function` makes a generator."""
    return type(function) is FunctionType and bool(
        function.__code__.co_flags & _GENERATOR
    )


def run_steps(
    function: Callable[..., Any],
    argument: Any,
    steps: Steps,
    encode: Callable[[object], bytes],
) -> Any:
    """Run a generator function to its end and return what it returns.

    Each state is encoded, also where nobody is told, so that one which cannot be ends every
    copy alike. Raises whatever the task and `encode` raise.
    """
    step = steps.step
    start_step(step)
    running = function(argument, state=steps.state)
    while True:
        try:
            state = next(running)
        except StopIteration as end:
            return end.value
        step += 1
        encoded = encode(state)
        if steps.teller is not None:
            steps.teller.tell(Progress(step, _fraction(state), encoded))
        start_step(step)


def read_state(encoded: bytes) -> object:
    """Return the state (hostile bytes) to go on from; raises ``STO-G122``."""
    try:
        state: object = from_node(skeleton.decode(encoded, DATA_BOUNDS))
    except Exception as error:  # any library may refuse what is in it
        raise TrustError(
            UNREADABLE_STATE, "the state to go on from cannot be read"
        ) from error
    return state


def _fraction(state: object) -> float | None:
    value: Any = state.get(FRACTION) if type(state) is dict else None
    if type(value) not in {int, float} or math.isnan(value):
        return None
    return min(max(float(value), 0.0), 1.0)


NO_ENTRY = "STO-P030"
KEPT_FILE = "kernels.txt"
"""Texts of our own kernels, part of the signed release; see `read_kept`."""
KEPT_BREAK, KEPT_JOINT = "\f\n", "\n\n\n"
_R = TypeVar("_R", bound=msgspec.Struct)
_runtimes: list[LanguageRuntime] = []


class EndedError(Exception):
    """Carries the `Failure` that ends a run."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def prepare(level: Level) -> None:
    """Import and build everything that runs at `level` need (in the zygote)."""
    use_types(level.travelling_types)
    _runtimes[:] = [prepare_runtime(level)]
    _runtimes[0].kept.update(compile_kept(level))
    stop_clock()
    sys.meta_path.insert(0, LATE_IMPORTS)


def compile_kept(level: Level) -> dict[str, CodeType]:
    """Return the code of the release's kernels whose imports `level` has, by their text.

    Compiled as a task's would be, from the release's own file: no byte of a task is seen.
    """
    file = f"{__file__.rpartition('/')[0]}/{KEPT_FILE}"
    if not {"math", "numpy", "zlib"} <= level.modules.keys():
        return {}  # all import these; a jail for one source has what that one names
    with open(file, encoding="utf-8") as kept:  # noqa: PTH123 - pathlib costs a cold start 3 ms
        texts = read_kept(kept.read())
    return {
        text: compile_source(text, level)
        for text in texts
        if _imported(text) <= level.modules.keys()
    }


def read_kept(file: str) -> list[str]:
    """Return the texts of a file that holds what they share once.

    Its first part has a line for each text, the numbers of its pieces; then come those.
    """
    table, *pieces = file.split(KEPT_BREAK)
    rows = [
        [pieces[int(number)] for number in row.split()] for row in table.split("\n")
    ]
    return [KEPT_JOINT.join(row) for row in rows]


def _imported(text: str) -> set[str]:
    lines = (line.split() for line in text.splitlines())
    return {words[1] for words in lines if words and words[0] in ("import", "from")}


def run(request: bytes, output: OutputSink) -> bytes:
    """Work on one request (untrusted); return one frame."""
    frame = run_call(_runtimes[0], request, output, write_progress)
    return skeleton.encode(frame | {"late_imports": LATE_IMPORTS.asked})


def run_call(
    runtime: LanguageRuntime,
    request: bytes,
    output: OutputSink,
    tell: Callable[[bytes], None] | None = None,
) -> dict[str, Any]:
    """Return the frame of one request, as a node; `tell` takes frames of progress."""
    printer = TaskPrinter(output)
    try:
        call = read_request(request, TaskRequest)
        teller = None
        if tell is not None and call.tell_ms >= 0:
            gap_s = call.tell_ms / 1000
            teller = Teller(tell, gap_s, call.most_state, time.monotonic)
        with captured_output(printer):
            return _run_all(runtime, call, printer, teller)
    except EndedError as ended:
        return _failed(ended.failure)
    except StoiloError as error:
        return _failed(describe_refusal(error))
    finally:
        sys.modules.pop(TASK_MODULE, None)


@contextlib.contextmanager
def captured_output(printer: TaskPrinter) -> Iterator[None]:
    """Send what libraries print, and warnings, where the task's own print goes."""
    with contextlib.redirect_stdout(printer), warnings.catch_warnings():  # type: ignore[type-var]  # has write
        warnings.showwarning = printer.show_warning
        yield


def read_request(data: bytes, kind: type[_R]) -> _R:
    """Return the request (untrusted) in `data`, or raise ``STO-G120``."""
    try:
        return msgspec.convert(skeleton.decode(data), kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        message = f"a request to the sandbox is malformed: {error}"
        raise TrustError("STO-G120", message) from None


def load_source(
    runtime: LanguageRuntime, source: str, printer: TaskPrinter
) -> ModuleType:
    """Return the loaded module of `source` (untrusted).

    Raises:
        PolicyRefusal: the source is refused before anything of it runs.
        EndedError: its module body failed.
    """
    code = runtime.kept.get(source) or compile_source(source, runtime.level)
    module: ModuleType = call_task(lambda: runtime.load(code, printer))
    return module


def call_task(function: Callable[[], Any]) -> Any:
    """Run the task's own code; whatever it raises becomes an `EndedError`."""
    try:
        return function()
    except SystemExit as stop:
        if type(stop.code) in {type(None), int, bool} and not stop.code:
            return None
        raise EndedError(describe_exception(stop)) from None
    except EndedError:
        raise
    except BaseException as error:  # noqa: BLE001 - the edge between task and us
        raise EndedError(describe_exception(error)) from None


def find_entry(module: ModuleType, entry: str) -> Callable[..., Any]:
    """Return the function `entry`, or the last one defined when empty.

    Raises:
        PolicyRefusal: ``STO-P030`` there is none.
    """
    own = {
        name: value
        for name, value in module.__dict__.items()
        if callable(value) and not name.startswith("__")
    }
    if not entry:
        lines = {
            name: value.__code__.co_firstlineno
            for name, value in own.items()
            if type(value) is FunctionType
            and value.__globals__ is module.__dict__
            and value.__code__.co_name == name
        }
        entry = max(lines, key=lines.__getitem__, default="")
    if entry not in own:
        raise PolicyRefusal(
            NO_ENTRY,
            f"the source defines no function {entry[:64]!r}",
            hint="name a function of the module body",
        )
    function: Callable[..., Any] = own[entry]
    return function


def _run_all(
    runtime: LanguageRuntime,
    call: TaskRequest,
    printer: TaskPrinter,
    teller: Teller | None,
) -> dict[str, Any]:
    start_item(bytes.fromhex(call.seed), 0, call.now)
    module = load_source(runtime, call.source, printer)
    function = find_entry(module, call.entry)
    arguments = bind_arguments(
        call.arguments, module, runtime, call.blobs, items=call.items
    )
    if not call.items:
        begun = bool(call.state)
        state = read_state(call.state) if begun else None
        steps = Steps(call.step if begun else 0, state, teller)
        return _run_item(call, 0, _bound(function, arguments, steps))
    return {"items": list(_run_items(call, function, arguments, teller))}


def _run_items(
    call: TaskRequest,
    function: Callable[..., Any],
    arguments: list[Any],
    teller: Teller | None,
) -> Iterator[dict[str, Any]]:
    # What items yield themselves is kept nowhere
    for index, item in enumerate(arguments):
        yield _run_item(call, index, _bound(function, item, Steps()))
        if teller is not None:
            teller.tell(Progress(index + 1, (index + 1) / call.items))


def _bound(
    function: Callable[..., Any],
    argument: Any,
    steps: Steps,
) -> Callable[[], Any]:
    if yields_states(function):
        return lambda: run_steps(function, argument, steps, encode_value)
    return lambda: function(argument)


def _run_item(
    call: TaskRequest, index: int, run_one: Callable[[], Any]
) -> dict[str, Any]:
    start_item(bytes.fromhex(call.seed), index, call.now)
    try:
        return _succeeded(encode_value(call_task(run_one)))
    except EndedError as ended:
        return _failed(ended.failure)


def encode_value(value: object) -> bytes:
    """Return the encoding of what left the task's code; `EndedError` when it has none."""
    try:
        return encode_result(value)
    except StoiloError as error:
        raise EndedError(describe_result(error)) from None
    except Exception as error:  # noqa: BLE001 - a value whose own methods misbehave
        raise EndedError(describe_exception(error)) from None


def _succeeded(value: bytes) -> dict[str, Any]:
    return {
        "status": RunStatus.OK.value,
        "value": value,
        **dict.fromkeys(("error_type", "error_text", "calls", "code", "layer"), ""),
    }


def _failed(failure: Failure) -> dict[str, Any]:
    return {
        "status": failure.status.value,
        "value": None,
        "error_type": failure.error_type,
        "error_text": failure.error_text,
        "calls": failure.calls,
        "code": failure.code,
        "layer": failure.layer.value,
    }
