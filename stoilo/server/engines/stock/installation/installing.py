"""One installation from end to end: read, plan, do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.engines.stock.entrypoints import ENTRY_POINTS, entry_point_text
from stoilo.server.engines.stock.installation.applying import Installer
from stoilo.server.engines.stock.installation.interpreter import find_interpreter
from stoilo.server.engines.stock.installation.owner import Owner, acting_as
from stoilo.server.engines.stock.installation.planning import make_plan
from stoilo.server.engines.stock.installation.reading import read_facts
from stoilo.server.engines.stock.installation.steps import WriteFile
from stoilo.server.engines.stock.project import read_project

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.engines.stock.installation.steps import Plan
    from stoilo.server.engines.stock.project import StockProject
    from stoilo.server.release.programs import ReleasedPrograms

__all__ = ["install_project"]


def install_project(
    root: Path,
    offer: ReleasedPrograms,
    *,
    quick: bool = False,
    dry_run: bool = False,
    url: str = "",
) -> Plan:
    """Make the project in `root` ready for the programs of `offer`; return what was done.

    Args:
        root: the project.
        offer: of `read_offer`.
        quick: see `Surroundings`.
        dry_run: only say what would be done.
        url: of its database (SQLAlchemy form), if another than config.xml names.

    Raises:
        UsageError, InternalError: ``STO-B001``, ``STO-B002``, ``STO-B020`` to
            ``STO-B027``, ``STO-B100``.
    """
    project = _read(root)
    wanted = _entry_points(Owner.of(project.root))
    facts = read_facts(project, [file.path for file in wanted], url=url)
    plan = make_plan(facts, offer.programs, offer.key, wanted, quick=quick)
    if not dry_run:
        installer = Installer(project.root, url or project.database_url)
        for step in plan.steps:
            installer.do(step)
    return plan


def _read(root: Path) -> StockProject:
    """Return the project as its owner reads it; raises as `read_project`."""
    if not root.is_dir():
        return read_project(root)  # says what is wrong with it
    with acting_as(Owner.of(root)):
        return read_project(root)


def _entry_points(owner: Owner) -> tuple[WriteFile, ...]:
    """Return the scripts that BOINC's daemons run."""
    content = entry_point_text(find_interpreter(owner)).encode()
    why = "BOINC's daemons ask the engine by it"
    return tuple(WriteFile(f"bin/{name}", content, 0o755, why) for name in ENTRY_POINTS)
