"""A system without any sandbox, as the child process of `stoilo.sandbox.suite.control`.

It does with a program what somebody would do who trusts it: run it, let it judge, believe
the bytes that it answers. Libraries are imported once and set as in a zygote (threads,
code generation); each program then runs in a fork.

Orders come as JSON lines on standard input, one answer each goes to standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

from stoilo.sandbox.language.determinism import start_item
from stoilo.sandbox.suite.programs import NOW, REACHED

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
    """Set what level ``tensor`` sets: one thread, no code made at run time."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
        torch.backends.mkldnn.set_flags(_enabled=False)
        torch.backends.nnpack.set_flags(_enabled=False)
        torch.backends.opt_einsum.enabled = False


def _wait_for(child: int, wall_s: float) -> int:
    """Return a child's exit status, negative for a signal; kill it after `wall_s`."""
    handle = os.pidfd_open(child)
    ready, _, _ = select.select([handle], [], [], wall_s)
    os.close(handle)
    if not ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if ready else TIMED_OUT


def _be_child(order: dict[str, Any], answers: int) -> None:
    """Do what the order says, with files for standard streams; never returns."""
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
    """Print an attack's value; keep a benign program's in its encoded form."""
    if not place:
        print(value)  # noqa: T201 - the answer
        return
    from stoilo.core.codec import skeleton  # noqa: PLC0415 - benign programs only
    from stoilo.core.codec.values import to_node  # noqa: PLC0415 - benign programs only

    Path(place).write_bytes(skeleton.encode(to_node(value)))


def _judge(module: Any, order: dict[str, Any]) -> None:  # noqa: ANN401
    """Ask a validator as a daemon would that has it in its own process."""
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
    """Let the case's own ``parent`` read the bytes that its ``run`` forged."""
    frame = module.run(order["kwargs"])
    data = b"".join(frame) if isinstance(frame, list) else frame
    print(module.parent(data))  # noqa: T201 - the answer
