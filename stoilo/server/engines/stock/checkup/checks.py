"""All checks of a project, in the order in which causes come before what they cause; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

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
from stoilo.server.engines.stock.checkup.snapshot import CheckResult, CheckVerdict

if TYPE_CHECKING:
    from stoilo.server.engines.stock.checkup.snapshot import Snapshot


Check = Callable[["Snapshot"], "CheckResult | Iterable[CheckResult]"]

# causes come before what they cause: a full disk before the daemon that it has stopped
CHECKS: Final[tuple[Check, ...]] = (
    check_disk,
    check_database,
    check_submission,
    check_clock,
    check_tables,
    check_stopped,
    check_daemons,
    check_cron,
    check_entry_points,
    check_tools,
    check_backlogs,
    check_own_rows,
    check_settings,
    check_keys,
    check_modes,
    check_plan_classes,
    check_templates,
    check_apps,
    check_replication,
    check_versions,
    check_web,
)


def examine(seen: Snapshot) -> tuple[CheckResult, ...]:
    """Return what is right and wrong with a project."""
    results: list[CheckResult] = []
    for check in CHECKS:
        said = check(seen)
        results += [said] if isinstance(said, CheckResult) else said
    return tuple(results)


def is_healthy(findings: tuple[CheckResult, ...]) -> bool:
    """Whether nothing failed."""
    return all(one.verdict is not CheckVerdict.FAIL for one in findings)
