"""`stoilo audit verify`: does a whole log hold, and if not, where not? Read-only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from stoilo.audit.format.policy import LogPolicy
from stoilo.audit.read.fsck import FsckReport, fsck_log
from stoilo.audit.read.reader import LogReport, verify_log
from stoilo.cli.audit.entries import read_policy
from stoilo.cli.audit.text import render_refusal
from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.plaintext import show_plainly

FAULTY_EXIT = 4


@click.command()
@click.argument("location", metavar="DIR_OR_URL")
@click.option("--policy", metavar="FILE|VKEY", help="Whose signatures to trust.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="List every fault with its file, its place and what would help (DIR only).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(
    context: click.Context,
    location: str,
    *,
    policy: str | None,
    every: bool,
    as_json: bool,
) -> None:
    """Read every entry of a log and check it against its signed checkpoint.

    DIR_OR_URL is a server's data directory, a log directory, an exported bundle or a
    log's URL. Nothing is changed; the server may run meanwhile.
    Exit code 0: it holds; 4: tampered; 2: not a log; 7: not reachable.
    """
    try:
        trusted = None if policy is None else read_policy(policy)
        if every:
            _list_faults(context, location, trusted, as_json=as_json)
            return
        report = verify_log(location, trusted)
    except StoiloError as error:
        if not as_json or every:
            raise
        click.echo(render_refusal(error))
        context.exit(error.exit_code)
    click.echo(render_json(report) if as_json else render_report(report))


def _list_faults(
    context: click.Context, location: str, policy: LogPolicy | None, *, as_json: bool
) -> None:
    if location.startswith(("http://", "https://")):
        raise UsageError("STO-L001", "--all needs the log's own files, not a URL")
    report = fsck_log(Path(location), policy)
    click.echo(render_faults_json(report) if as_json else render_faults(report))
    if not report.is_sound:
        context.exit(FAULTY_EXIT)


def render_json(report: LogReport) -> str:
    """Return the machine's form of a verified log."""
    return json.dumps({"verified": True, **dataclasses.asdict(report)})


def render_report(report: LogReport) -> str:
    """Return what a person reads about a verified log."""
    lines = [
        (
            f"The log {show_plainly(report.origin)} holds: {report.size} leaves, "
            f"{report.tiles_checked} tiles checked."
        ),
        f"root {report.root}",
    ]
    if report.witnesses:
        lines.append(f"cosigned by {show_plainly(', '.join(report.witnesses))}")
    if report.unpublished:
        lines.append(f"{report.unpublished} acknowledged leaves await publication")
    if report.own_policy:
        lines.append(
            "The key came from the log itself; pass --policy to pin the one you trust."
        )
    return "\n".join(lines)


def render_faults_json(report: FsckReport) -> str:
    """Return the machine's form of a report."""
    return json.dumps({"sound": report.is_sound, **dataclasses.asdict(report)})


def render_faults(report: FsckReport) -> str:
    """Return what a person reads: every finding, then what is known of the whole."""
    lines = []
    for one in report.findings:
        lines.append(f"{one.severity}: {_on_one_line(str(one))}")
        if one.remedy:
            lines.append(f"    {one.remedy}")
    if report.omitted:
        lines.append(f"… and {report.omitted} more findings")
    lines.append(_summary(report))
    if report.is_proven:
        lines.append("The tree of the sound copies has the signed root.")
    elif report.published:
        lines.append("No combination of copies leads to a signed root.")
    if report.own_policy:
        lines.append(
            "The key came from the log itself; pass --policy to pin the one you trust."
        )
    return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """Return foreign text, a file's name for example, as one harmless line."""
    return show_plainly(text).replace("\n", "\\n")


def _summary(report: FsckReport) -> str:
    name = _on_one_line(report.origin or "(unnamed)")
    sizes = f"{report.published} leaves published"
    if report.acknowledged is not None:
        sizes += f", {report.acknowledged} acknowledged"
    if report.committed is not None:
        sizes += f", {report.committed} committed"
    plural = "" if report.faults == 1 else "s"
    verdict = "no fault" if report.is_sound else f"{report.faults} fault{plural}"
    return f"The log {name}: {verdict}; {sizes}."
