"""The positive control: the same program with every layer off, in a process of its own.

Only for suites whose programs one is ready to run: nothing holds them here but their own
manners, a temporary folder and a time limit. The child does with a program what somebody
would do who trusts it: run it, let it judge, believe the bytes that it answers. Libraries
are imported once and set as in a zygote; each program then runs in a fork. Orders come as
JSON lines on standard input, one answer each goes to standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level
from stoilo.sandbox.language.runtime import start_item
from stoilo.sandbox.process.supervisor import zygote_environment
from stoilo.sandbox.suite.case import Case
from stoilo.sandbox.suite.programs import (
    NOW,
    REACHED,
    Ground,
    arguments_of,
    validator_of,
)

CONTROL_S = 60.0
"""Elapsed time after which a control counts as failed, s."""

_ANSWER_S = CONTROL_S + 30.0
"""After it a process counts as lost: its program may have stopped it, s."""

_SCRIPT = "from stoilo.sandbox.suite.control import serve; serve()"


@dataclass(frozen=True, slots=True)
class ControlRun:
    """What a program did without any layer."""

    status: int  # exit status; negative a signal, 124 after `CONTROL_S`
    output: str  # what it printed
    errors: str  # what it wrote to standard error
    value: bytes  # the encoded value of a benign program, empty otherwise


class Controls:
    """Processes without a sandbox, one a level; thread-safe.

    A process imports what its level's zygote does, with a zygote's environment, so that
    benign programs can be compared to the last bit.
    """

    def __init__(self, answer_s: float = _ANSWER_S) -> None:
        self._answer_s = answer_s
        self._started: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process."""
        with self._lock:
            while self._started:
                self._end(self._started.popitem()[1])

    def run(self, case: Case, ground: Ground, level: Level) -> ControlRun:
        """Run `case` as a system without a sandbox would, and return what it did.

        Raises:
            InternalError: ``STO-S003``, the process does not answer.
        """
        order = _order(case, ground)
        with self._lock:
            process = self._started.get(level.name) or self._start(level)
            status = self._ask(process, json.dumps(order), self._answer_s)
            if status is None:
                self._end(self._started.pop(level.name))
                raise InternalError(
                    "STO-S003", "the control process has died or was stopped"
                )
        value = ground.folder / "answer"
        return ControlRun(
            status,
            (ground.folder / "output").read_text("utf-8", "replace"),
            (ground.folder / "errors").read_text("utf-8", "replace"),
            value.read_bytes() if case.benign and value.exists() else b"",
        )

    def _start(self, level: Level) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=zygote_environment() | {"PATH": os.environ.get("PATH", os.defpath)},
            text=True,
        )
        _write(process, json.dumps(level.preload))
        self._started[level.name] = process
        return process

    @staticmethod
    def _ask(process: subprocess.Popen[str], order: str, answer_s: float) -> int | None:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        try:
            _write(process, order)
            ready, _, _ = select.select([process.stdout], [], [], answer_s)
            answer = process.stdout.readline() if ready else ""
        except OSError:
            return None
        return int(answer) if answer.endswith("\n") else None

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        with process:
            process.kill()


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def _order(case: Case, ground: Ground) -> dict[str, object]:
    return {
        "run": case.header.run.value,
        "program": case.program.hex(),
        "kwargs": arguments_of(case, ground),
        "entry": validator_of(case),
        "wall_s": CONTROL_S,
        "folder": str(ground.folder),
        "output": str(ground.folder / "output"),
        "errors": str(ground.folder / "errors"),
        "answer": str(ground.folder / "answer") if case.benign else "",
    }


MODULE = "attack"
"""``__name__`` of a program that no layer holds."""

TIMED_OUT = 124


def serve() -> None:
    """Import what the first line names, then run one program for each further line."""
    answers = os.fdopen(os.dup(1), "w")
    for name in json.loads(sys.stdin.readline()):
        importlib.import_module(name)
    _settle_torch()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _be_child(order, answers.fileno())
        answers.write(f"{_wait_for(child, order['wall_s'])}\n")
        answers.flush()


def _settle_torch() -> None:
    # Set what level ``tensor`` sets: one thread, no code made at run time
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
        torch.backends.mkldnn.set_flags(_enabled=False)
        torch.backends.nnpack.set_flags(_enabled=False)
        torch.backends.opt_einsum.enabled = False


def _wait_for(child: int, wall_s: float) -> int:
    handle = os.pidfd_open(child)
    ready, _, _ = select.select([handle], [], [], wall_s)
    os.close(handle)
    if not ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if ready else TIMED_OUT


def _be_child(order: dict[str, Any], answers: int) -> None:
    os.close(answers)
    os.chdir(order["folder"])
    places = ((0, os.devnull), (1, order["output"]), (2, order["errors"]))
    for number, place in places:
        opened = os.open(place, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - until the process ends
    status = 1
    try:
        _obey(order)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - the program's edge
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _obey(order: dict[str, Any]) -> None:
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # fewer parameters
    if order["answer"]:
        start_item(bytes(32), 0, NOW)
    module = _load(order)
    match order["run"]:
        case "probe":
            return
        case "validator":
            _judge(module, order)
        case "result":
            _believe(module, order)
        case _:
            if hasattr(module, "run"):
                _answer(module.run(order["kwargs"]), order["answer"])


def _show_warning(message: object, category: type, *_place: object) -> None:
    sys.stdout.write(f"{category.__name__}: {message}\n")


def _load(order: dict[str, Any]) -> Any:  # noqa: ANN401
    probe = order["run"] == "probe"
    module = types.ModuleType("__main__" if probe else MODULE)
    sys.modules[module.__name__] = module
    module.__dict__["__package__"] = "" if probe else MODULE
    if probe:
        module.__dict__["CANARY"] = order["kwargs"]["canary"]
        module.__dict__["MARK"] = order["kwargs"]["mark"]
    program = bytes.fromhex(order["program"])
    code = compile(program, "<control>", "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - the control has no layer by definition
    return module


def _answer(value: object, place: str) -> None:
    if not place:
        print(value)  # noqa: T201 - the answer
        return
    from stoilo.core.codec import skeleton  # noqa: PLC0415 - benign programs only
    from stoilo.core.codec.values import to_node  # noqa: PLC0415 - benign programs only

    Path(place).write_bytes(skeleton.encode(to_node(value)))


def _judge(module: Any, order: dict[str, Any]) -> None:  # noqa: ANN401
    # Ask a validator as a daemon would that has it in its own process
    values = [order["kwargs"]] * (1 if order["entry"] == "init" else 2)
    try:
        verdict = getattr(module, order["entry"])(*values)
    except Exception as error:  # noqa: BLE001 - counts as a rejection
        print(error)  # noqa: T201 - the answer
        return
    except BaseException:  # noqa: BLE001 - the daemon would be gone
        verdict = True
    print(verdict, REACHED if verdict else "")  # noqa: T201 - the answer


def _believe(module: Any, order: dict[str, Any]) -> None:  # noqa: ANN401
    frame = module.run(order["kwargs"])
    data = b"".join(frame) if isinstance(frame, list) else frame
    print(module.parent(data))  # noqa: T201 - the answer
