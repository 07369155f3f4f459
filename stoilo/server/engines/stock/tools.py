"""Running BOINC's own programs, with an end in time and no shell.

What they print is read for the log only: whether something was done is asked from the
database, because they stop half-way and some print errors and exit with 0.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stoilo.server.engines.stock.project import StockProject

__all__ = ["Tools", "tool_environment"]

_TIME_S: Final = 120
_KEPT_CHARS: Final = 300
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Of our environment; the rest may hold passwords, and is none of BOINC's business."""


class Tools:
    """The programs in a project's ``bin``."""

    def __init__(self, project: StockProject, time_s: float = _TIME_S) -> None:
        self._project = project
        self._time_s = time_s

    def create_work(self, arguments: Sequence[str], lines: Sequence[str]) -> None:
        """Make workunits, one for each line; raises ``STO-B005``, perhaps half-way."""
        self._run("create_work", arguments, "".join(f"{line}\n" for line in lines))

    def cancel(self, first: int, last: int) -> None:
        """Cancel all workunits of BOINC's numbers [first, last]; raises ``STO-B005``."""
        self._run("cancel_jobs", [str(first), str(last)])

    def _run(self, tool: str, arguments: Sequence[str], text: str = "") -> None:
        try:
            done = subprocess.run(
                [str(self._project.tool(tool)), *arguments],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=self._project.root,
                env=tool_environment(self._project.root),
                timeout=self._time_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InternalError(
                "STO-B005", f"{tool} could not be run ({type(error).__name__})"
            ) from error
        if done.returncode:
            said = " | ".join(done.stderr.split("\n")).strip(" |")[-_KEPT_CHARS:]
            raise InternalError("STO-B005", f"{tool} exited {done.returncode}: {said}")


def tool_environment(root: Path) -> dict[str, str]:
    """Return what one of BOINC's programs is started with."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**passed, "BOINC_PROJECT_DIR": str(root)}
