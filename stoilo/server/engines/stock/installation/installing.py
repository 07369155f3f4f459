"""One installation from end to end: read, plan, do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.engines.stock.installation.applying import Installer
from stoilo.server.engines.stock.installation.planning import make_plan
from stoilo.server.engines.stock.installation.reading import read_facts
from stoilo.server.engines.stock.project import read_project

if TYPE_CHECKING:
    from pathlib import Path

    from stoilo.server.engines.stock.installation.steps import Plan, WriteFile
    from stoilo.server.programs import ReleasedPrograms

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
            ``STO-B027``.
    """
    project = read_project(root)
    wanted: tuple[WriteFile, ...] = ()
    facts = read_facts(project, [file.path for file in wanted], url=url)
    plan = make_plan(facts, offer.programs, offer.key, wanted, quick=quick)
    if not dry_run:
        installer = Installer(project.root)
        for step in plan.steps:
            installer.do(step)
    return plan
