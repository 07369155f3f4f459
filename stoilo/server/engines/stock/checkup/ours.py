"""Whether work passes between BOINC and the server: made, ended, taken; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.engines.stock.checkup.findings import fail, ok, skip
from stoilo.server.engines.stock.checkup.running import LATE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import Finding, OwnView, Snapshot

__all__ = ["check_own_rows", "check_tools"]

_LOG = "read the server's log (journalctl -u stoilo)"


def check_tools(seen: Snapshot) -> Finding:
    """Say whether the programs of BOINC's that make and cancel workunits can be run."""
    missing = [one.name for one in seen.tools if not (one.present and one.executable)]
    if missing:
        text = f"bin/{', bin/'.join(missing)} cannot be run: no task would be sent out"
        return fail("tools", text, "copy it from BOINC's build, as make_project does")
    return ok("tools", f"{len(seen.tools)} in bin")


def check_own_rows(seen: Snapshot) -> Iterator[Finding]:
    """Say what waits too long on its way into BOINC and out of it."""
    own = seen.database.own
    if seen.database.trouble:
        yield skip("backlog creation", "the database does not answer")
        return
    if not own.known:
        yield skip("backlog creation", "no server has run on this project yet")
        return
    yield _creation(own)
    yield _delivery(own)
    if own.foreign:
        text = (
            f"{own.foreign} workunits with a name of ours were made by somebody else, for"
            f" example {own.foreign_name}: what comes of them is not what was asked for"
        )
        yield fail(
            "names",
            text,
            "cancel them with bin/cancel_jobs --name NAME, and let nothing but stoilo make"
            " work for its apps",
        )


def _creation(own: OwnView) -> Finding:
    waiting = own.uncreated
    if waiting.count and waiting.oldest_s > LATE_S:
        text = (
            f"{waiting.count} workunits wait for create_work, the oldest for"
            f" {waiting.oldest_s} s: it fails, or stops half-way"
        )
        return fail(
            "backlog creation", text, f"{_LOG}: it says why; nothing is made twice"
        )
    return ok("backlog creation", f"{waiting.count} for create_work")


def _delivery(own: OwnView) -> Finding:
    waiting = own.undelivered
    if waiting.count and (own.refused or waiting.oldest_s > LATE_S):
        text = (
            f"{waiting.count} ended workunits wait for the server to take them, the oldest"
            f" for {waiting.oldest_s} s; {own.refused} of them it could not take at first:"
            " BOINC has done its part, the server is slow, stopped or in trouble"
        )
        return fail("backlog outcomes", text, f"{_LOG}; see whether its disk is full")
    return ok("backlog outcomes", f"{waiting.count} for the server")
