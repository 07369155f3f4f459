"""`stoilo audit monitor`: watch a log from outside."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path

import click
import platformdirs

from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.monitor.finding import (
    Finding,
    MonitorSettings,
    parse_commitments,
    parse_watches,
)
from stoilo.audit.monitor.monitor import Monitor, MonitorReport, run_monitor
from stoilo.audit.monitor.state import MonitorState
from stoilo.audit.read.source import open_source
from stoilo.cli.audit.entries import read_policy
from stoilo.cli.output import FOLDER, JSON, say
from stoilo.core.background import Wakeup
from stoilo.core.digests import content_digest


@click.command()
@click.argument("location", metavar="URL|DIR")
@click.option(
    "--policy",
    metavar="FILE|VKEY",
    required=True,
    help="Whose signatures to trust; not the log's own copy.",
)
@click.option(
    "--watch",
    "watches",
    multiple=True,
    metavar="WATCH",
    help="commitment:HEX, digest:HEX, code:STO-R052, key:HEX|ROLE, kind:NAME, task:ID, "
    "result:NAME or @FILE.",
)
@click.option(
    "--known",
    multiple=True,
    metavar="HEX|@FILE",
    help="Commitments of the submitters you expect; others raise the alarm.",
)
@click.option(
    "--state",
    "directory",
    type=FOLDER,
    help="Where it remembers; by default one of its own for each log.",
)
@click.option("--once", is_flag=True, help="Look once, and exit 4 after any alarm.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Pause, s.",
)
@click.option(
    "--explain-within",
    type=click.IntRange(min=0),
    default=900,
    show_default=True,
    help="An admission must be explained so soon, s.",
)
@click.option(
    "--silence",
    type=click.IntRange(min=1),
    default=86_400,
    show_default=True,
    help="A log without news is silent after, s.",
)
@JSON
@click.pass_context
def monitor(
    context: click.Context,
    location: str,
    *,
    policy: str,
    watches: tuple[str, ...],
    known: tuple[str, ...],
    directory: Path | None,
    once: bool,
    interval: float,
    explain_within: int,
    silence: int,
    as_json: bool,
) -> None:
    """Follow a log from outside and tell what you watch for, and what is wrong.

    Every new leaf is hashed; what is shown must extend what was seen before. A log that
    signs two histories is proven to: the proof is printed, written into the state's
    directory, and the exit code is 4. Findings are kept until they were shown.

    Example: stoilo audit monitor http://127.0.0.1:57080/ --policy policy.txt
    --watch kind:key --watch @mine.txt
    """
    trusted = read_policy(policy)
    settings = MonitorSettings(
        watches=parse_watches(watches),
        known=parse_commitments(known) if known else None,
        explain_s=explain_within,
        silence_s=silence,
    )
    stop = _Stop()
    state = MonitorState.open(directory or _default_state(trusted))
    before = signal.signal(signal.SIGTERM, lambda *_: stop.waking.stop())
    try:
        report = run_monitor(
            Monitor(open_source(location), trusted, state, settings, clock=time.time),
            state,
            _show_json if as_json else _show_text,
            once=once,
            interval_s=interval,
            wait=stop.wait,
        )
    finally:
        signal.signal(signal.SIGTERM, before)
        state.close()
    _show_report(report, as_json=as_json)
    context.exit(report.exit_code)


class _Stop:
    """Ends the watch from a signal handler, which an `Event` may not."""

    def __init__(self) -> None:
        self.waking = Wakeup()

    def wait(self, timeout: float) -> bool:
        self.waking.wait(timeout)
        return self.waking.stopping


def _default_state(policy: LogPolicy) -> Path:
    """Return this user's directory for the log that a policy names."""
    name = content_digest(policy.logs[0].name.encode())[:16]
    return platformdirs.user_state_path("stoilo") / "monitor" / name


def _show_text(finding: Finding, file: str) -> None:
    code = f" [{finding.code}]" if finding.code else ""
    # Names and messages are hostile: they must not drive the terminal.
    text = "".join(char if char.isprintable() else "?" for char in finding.message)
    click.echo(f"{finding.severity.upper():6} {finding.kind}: {text}{code}")
    if finding.proof:
        click.echo(finding.proof, nl=False)
        click.echo(f"written to {file or 'no file: keep this text'}", err=True)


def _show_json(finding: Finding, file: str) -> None:
    fields = {name: getattr(finding, name) for name in finding.__struct_fields__}
    say(fields | {"file": file}, "", as_json=True)


def _show_report(report: MonitorReport, *, as_json: bool) -> None:
    text = "Nothing of the log was verified yet."
    if report.origin:
        text = (
            f"The log {report.origin} was followed to {report.size} leaves, "
            f"{report.findings or 'no'} finding{'s' * (report.findings != 1)}."
        )
    record = {"kind": "status", **dataclasses.asdict(report)}
    say(record, text, as_json=as_json)
