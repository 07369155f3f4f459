"""`contextlib`: output redirected within the task, which has no real streams."""

from __future__ import annotations

from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.output import redirect_output, restore_output

__all__ = ["build"]


class redirect_stdout:  # noqa: N801 - the library's name
    """``contextlib.redirect_stdout`` for what the task prints."""

    __slots__ = ("_target",)

    def __init__(self, new_target: Any) -> None:
        self._target = new_target

    def __enter__(self) -> Any:
        redirect_output(self._target)
        return self._target

    def __exit__(self, *_details: object) -> None:
        restore_output()


redirect_stdout.__module__ = "contextlib"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"redirect_stdout": redirect_stdout}
