"""What both engines tell of themselves, in the same words: where a workunit is, and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import func, select

from stoilo.server.engines.interface import (
    ResultOutcome,
    ResultProgress,
    WorkunitStatus,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from stoilo.server.engines.interface import OutcomeKind, ResultView

# A host counts as attached when it called within that time
SEEN_WITHIN_S: Final = 600
# Times within which hosts are counted, by their words in `EngineFigures`
WITHIN_S: Final = {"10m": SEEN_WITHIN_S, "1d": 86_400}


def status_of(
    name: str,  # of the workunit
    results: Sequence[ResultView],  # oldest first
    outcome: OutcomeKind | None,  # None while it runs
    attached: int,  # users with a host seen lately that may take its app
    quorum: int,  # results that have to agree, as it is in force
    *,
    host_class: str = "",  # the one class of host that it goes to, empty for any
    idle: str = "",  # what it waits for when no result says it
) -> WorkunitStatus:
    """Return a workunit's status with its sentence for people."""
    count = [one.state for one in results].count
    unsent, working = count(ResultProgress.UNSENT), count(ResultProgress.IN_PROGRESS)
    done = sum(one.outcome is ResultOutcome.SUCCESS for one in results)
    alike = f" of class {host_class}" if host_class else ""
    if outcome is not None:
        said = f"ended: {outcome.value.replace('_', ' ')}"
    elif unsent and attached < quorum:
        said = f"needs {quorum} distinct users, {attached} attached"
    elif unsent:
        waiting = f"{unsent} results wait for a host{alike}"
        said = f"{waiting}, {working} are on hosts, {done} are in"
    elif working:
        said = f"{working} results are on hosts, {done} are in"
    else:
        said = f"{done} results are being validated" if done or not idle else idle
    return WorkunitStatus(name, tuple(results), outcome, attached, said)


def count_rows(
    connection: Connection, table: Table, *which: ColumnElement[bool]
) -> int:
    """Return how many rows of a table there are, of those that are meant."""
    query = select(func.count()).select_from(table).where(*which)
    return int(connection.scalar(query) or 0)


def age_of(now: int, since: int | None) -> int:
    """Return for how long something has waited, s; 0 where nothing does."""
    return 0 if since is None else max(0, now - since)
