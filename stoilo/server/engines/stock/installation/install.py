"""One installation from end to end: read the release, read the project, plan, do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.trust import load_trust
from stoilo.server.engines.stock.installation.app_versions import check_signatures
from stoilo.server.engines.stock.installation.apply import Installer
from stoilo.server.engines.stock.installation.facts import read_facts
from stoilo.server.engines.stock.installation.owner import (
    Owner,
    acting_as,
    find_interpreter,
)
from stoilo.server.engines.stock.installation.plan import WriteFile, make_plan
from stoilo.server.engines.stock.project.directory import read_project
from stoilo.server.engines.stock.scripts.server import ENTRY_POINTS, entry_point_text
from stoilo.server.release.programs import ReleasedPrograms, read_programs

if TYPE_CHECKING:
    from stoilo.server.engines.stock.installation.plan import Plan
    from stoilo.server.engines.stock.project.directory import StockProject
    from stoilo.server.release.programs import ReleasedPrograms

__all__ = ["install_project", "read_offer"]


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
        UsageError, InternalError: ``STO-B001``, ``STO-B002``, ``STO-B021`` to
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


def read_offer(directory: Path) -> ReleasedPrograms:
    """Return what stock clients get of the release in `directory`, checked as by them.

    Raises:
        UsageError: ``STO-B028`` when there is nothing for them.
        TrustError: the release's codes; ``STO-E002`` a file that is not of its digest;
            ``STO-E050``, ``STO-E051`` signatures and platforms.
    """
    root = directory / "root.json"
    if not root.is_file():
        raise UsageError(
            "STO-B028",
            "there is no published release",
            hint="name the folder with root.json, metadata and targets: DATA/keys",
        )
    trust = load_trust(
        directory, root.read_bytes(), int(time.time()), installed=installed_release()
    )
    found = read_programs(directory, trust)
    if not found.programs:
        raise UsageError(
            "STO-B028",
            "the release has no programs that are signed for BOINC clients",
            hint="let the ceremony sign launcher and verifier with the role boinc",
        )
    check_signatures(found.programs, found.key)
    return found
