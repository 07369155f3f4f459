"""Whether a project runs and keeps up: stop files, daemons, backlogs; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.checkup.findings import fail, ok, skip, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import (
        Backlog,
        DaemonState,
        Finding,
        Snapshot,
    )

__all__ = ["check_backlogs", "check_cron", "check_daemons", "check_stopped"]

LATE_S: Final = 120
"""A daemon that looks every second has taken a row long before."""

CRON_S: Final = 900
"""``bin/start --cron`` runs every five minutes."""

_START: Final = "run bin/start in the project's directory"


def check_stopped(seen: Snapshot) -> Finding:
    """Say whether somebody has stopped the project."""
    if not seen.stop_files:
        return ok("stopped", "the project is not stopped")
    return fail(
        "stopped",
        f"the project is stopped ({', '.join(seen.stop_files)}): every client that calls"
        " is told to stay away for an hour",
        f"{_START}; for a change of config.xml a stop is never needed",
    )


def check_daemons(seen: Snapshot) -> Iterator[Finding]:
    """Say of each daemon whether it lives."""
    if not seen.daemons:
        yield fail(
            "daemons",
            f"config.xml has no daemon for this machine ({seen.host})",
            "run stoilo boinc install: <host> must be the machine's short name",
        )
    for state in seen.daemons:
        yield _daemon(state, _cause(seen))


def _cause(seen: Snapshot) -> str:
    """Return why no daemon can live, empty where each has to answer for itself."""
    if seen.database.trouble:
        return "BOINC's daemons end when the database does; cron starts them again"
    return "the project is stopped" if seen.stop_files else ""


def _daemon(state: DaemonState, cause: str) -> Finding:
    daemon = state.daemon
    name = f"daemon {daemon.pid_name.removesuffix('.pid')}"
    if daemon.disabled:
        return warn(name, "it is disabled", "remove <disabled> in config.xml")
    if state.alive:
        return ok(name, f"process {state.pid}")
    if cause:
        return skip(name, cause)
    said = f"; its log ends: {state.last_words}" if state.last_words else ""
    what = f"process {state.pid} is gone" if state.pid else "it was never started"
    return fail(name, f"{what}{said}", f"read {daemon.log_name}, then {_START}")


def check_cron(seen: Snapshot) -> Finding:
    """Say whether something starts dead daemons again."""
    advice = "let cron run `cd PROJECT; bin/start --cron` every five minutes"
    if seen.cron_age_s is None:
        return warn("cron", "bin/start has never run", advice)
    if seen.cron_age_s > CRON_S:
        text = f"bin/start was last run {seen.cron_age_s} s ago: a daemon that dies stays dead"
        return warn("cron", text, advice)
    return ok("cron", f"bin/start was run {seen.cron_age_s} s ago")


_STEPS: Final = (
    (
        "transitions",
        "transitioner",
        "workunits wait for their next step",
        "see whether it lives; 'Duplicate entry' in its log is join_cache_level's fault",
    ),
    (
        "validations",
        "validators",
        "workunits wait for a validator",
        "see whether validators live and the entry points' socket answers",
    ),
    (
        "assimilations",
        "assimilators",
        "finished workunits wait for an assimilator: it is slow, or does not run",
        "see whether they live and the server's database and disk are quick; nothing is lost",
    ),
    (
        "deletions",
        "file_deleter",
        "workunits wait for their files to be deleted",
        "see whether file_deleter lives and may write in upload",
    ),
)


def check_backlogs(seen: Snapshot) -> Iterator[Finding]:
    """Say of each stage whether workunits wait in it for too long."""
    for name, who, what, advice in _STEPS:
        if seen.database.trouble:
            yield skip(f"backlog {name}", "the database does not answer")
            continue
        backlog: Backlog = getattr(seen.database, name)
        said = f"{backlog.count} {what}, the oldest for {backlog.oldest_s} s"
        if backlog.count and backlog.oldest_s > LATE_S:
            yield fail(f"backlog {name}", said, advice)
        else:
            yield ok(f"backlog {name}", f"{backlog.count} for {who}")
