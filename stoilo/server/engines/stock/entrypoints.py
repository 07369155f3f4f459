"""Installing the scripts that BOINC's daemons run, as executable files in ``bin``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock import entrypoint
from stoilo.server.engines.stock.messages import ASSIMILATE, CHECK, COMPARE

if TYPE_CHECKING:
    from stoilo.server.engines.stock.project import StockProject

__all__ = ["ENTRY_POINTS", "entry_point_text", "write_entry_points"]

ENTRY_POINTS: Final = (CHECK, COMPARE, ASSIMILATE)
_MODE: Final = 0o755


def entry_point_text(interpreter: str = sys.executable) -> str:
    """Return the script; `interpreter` runs it bare: no site, no environment."""
    source = Path(entrypoint.__file__).read_text(encoding="utf-8")
    return f"#!{interpreter} -IS\n{source}"


def write_entry_points(
    project: StockProject, interpreter: str = sys.executable
) -> tuple[Path, ...]:
    """Write the three scripts, whole or not at all; returns where."""
    text = entry_point_text(interpreter)
    paths = tuple(project.tool(name) for name in ENTRY_POINTS)
    for path in paths:
        draft = path.with_suffix(".part")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(_MODE)
        draft.replace(path)
    return paths
