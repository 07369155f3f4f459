"""`warnings`: recorded warnings name the task's file or none; no other module is swapped.

The real recorder shows the path of the library or worker that warned: the volunteer's
own, and another on every honest copy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.rules import TASK_FILENAME

__all__ = ["build"]

LIBRARY_FILENAME = "<library>"


class catch_warnings:  # noqa: N801 - the library's name
    """``warnings.catch_warnings`` of the real module only."""

    __slots__ = ("_inner", "_log", "_record")

    def __init__(self, *, record: bool = False, **options: Any) -> None:
        if options.pop("module", None) is not None:
            raise TypeError("catch_warnings() takes no module in a task")
        self._inner = warnings.catch_warnings(**options)
        self._record = bool(record)
        self._log: list[warnings.WarningMessage] = []

    def __enter__(self) -> list[warnings.WarningMessage] | None:
        self._inner.__enter__()
        if not self._record:
            return None
        warnings.showwarning = _keep_in(self._log)
        return self._log

    def __exit__(self, *details: object) -> None:
        self._inner.__exit__(*details)  # type: ignore[arg-type]  # passed through


def _keep_in(log: list[warnings.WarningMessage]) -> Callable[..., None]:
    """Return what adds each warning that it is called with to `log`."""

    def keep(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *_more: object,
    ) -> None:
        place = filename if filename == TASK_FILENAME else LIBRARY_FILENAME
        log.append(warnings.WarningMessage(message, category, place, lineno))

    return keep


catch_warnings.__module__ = "warnings"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"catch_warnings": catch_warnings}
