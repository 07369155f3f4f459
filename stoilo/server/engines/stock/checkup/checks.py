"""All checks of a project, in the order in which causes come before what they cause; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.engines.stock.checkup.running import (
    check_backlogs,
    check_clock,
    check_cron,
    check_daemons,
    check_database,
    check_disk,
    check_own_rows,
    check_stopped,
    check_tables,
    check_tools,
    check_web,
)
from stoilo.server.engines.stock.checkup.setup import (
    check_apps,
    check_entry_points,
    check_keys,
    check_modes,
    check_plan_classes,
    check_replication,
    check_settings,
    check_submission,
    check_templates,
    check_versions,
)
from stoilo.server.engines.stock.checkup.snapshot import Verdict

if TYPE_CHECKING:
    from stoilo.server.engines.stock.checkup.snapshot import Finding, Snapshot

__all__ = ["examine", "is_healthy"]


def examine(seen: Snapshot) -> tuple[Finding, ...]:
    """Return what is right and wrong with a project."""
    return (
        *check_disk(seen),
        check_database(seen),
        *check_submission(seen),
        check_clock(seen),
        *check_tables(seen),
        check_stopped(seen),
        *check_daemons(seen),
        check_cron(seen),
        *check_entry_points(seen),
        check_tools(seen),
        *check_backlogs(seen),
        *check_own_rows(seen),
        *check_settings(seen),
        *check_keys(seen),
        *check_modes(seen),
        *check_plan_classes(seen),
        check_templates(seen),
        check_apps(seen),
        *check_replication(seen),
        *check_versions(seen),
        *check_web(seen),
    )


def is_healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing failed."""
    return all(one.verdict is not Verdict.FAIL for one in findings)
