"""`sys`: numbers about the machine's arithmetic, the output, and a way to stop."""

from __future__ import annotations

import sys
from typing import NoReturn

from stoilo.core.levels import Level
from stoilo.sandbox.language.rules import TASK_FILENAME

__all__ = ["build"]


class TaskStream:
    """``sys.stdout`` and ``sys.stderr`` of a task: what is written is printed."""

    __slots__ = ()

    def write(self, text: str) -> int:
        """Write to wherever this run's output goes."""
        return sys.stdout.write(text)

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


def _exit(status: object = None) -> NoReturn:
    raise SystemExit(status)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {
        "argv": [TASK_FILENAME],
        "exit": _exit,
        "stderr": TaskStream(),
        "stdout": TaskStream(),
        "version": "{}.{}.{}".format(*sys.version_info[:3]),
    }
