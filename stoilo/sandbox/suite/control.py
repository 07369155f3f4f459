"""The positive control: the same program with every layer off, in a process of its own.

Only for suites whose programs one is ready to run: nothing holds them here but their own
manners, a temporary folder and a time limit.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from stoilo.core.errors import InternalError
from stoilo.core.levels import Level
from stoilo.sandbox.process.supervisor import zygote_environment
from stoilo.sandbox.suite.case import Case
from stoilo.sandbox.suite.programs import Ground, arguments_of, validator_of

CONTROL_S = 60.0
"""Elapsed time after which a control counts as failed, s."""

_ANSWER_S = CONTROL_S + 30.0
"""After it a process counts as lost: its program may have stopped it, s."""

_SCRIPT = "from stoilo.sandbox.suite.careless import serve; serve()"


@dataclass(frozen=True, slots=True)
class ControlRun:
    """What a program did without any layer.

    Attributes:
        status: exit status; negative a signal, 124 after `CONTROL_S`.
        output: what it printed.
        errors: what it wrote to standard error.
        value: the encoded value of a benign program, empty otherwise.
    """

    status: int
    output: str
    errors: str
    value: bytes


class Controls:
    """Processes without a sandbox, one a level; thread-safe.

    A process imports what its level's zygote does, with a zygote's environment, so that
    benign programs can be compared to the last bit.

    Args:
        answer_s: elapsed time after which a process counts as lost, s.
    """

    def __init__(self, answer_s: float = _ANSWER_S) -> None:
        self._answer_s = answer_s
        self._started: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process."""
        with self._lock:
            while self._started:
                self._end(self._started.popitem()[1])

    def run(self, case: Case, ground: Ground, level: Level) -> ControlRun:
        """Run `case` as a system without a sandbox would, and return what it did.

        Raises:
            InternalError: ``STO-S042``, the process does not answer.
        """
        order = _order(case, ground)
        with self._lock:
            process = self._started.get(level.name) or self._start(level)
            status = self._ask(process, json.dumps(order), self._answer_s)
            if status is None:
                self._end(self._started.pop(level.name))
                raise InternalError(
                    "STO-S042", "the control process has died or was stopped"
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
    """Return what `stoilo.sandbox.suite.careless` is told to do."""
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
