"""`stoilo audit fsck`: every fault of a log, with its place. Read-only."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.core.plaintext import show_plainly

if TYPE_CHECKING:
    from stoilo.audit.read.fsck import FsckReport

__all__ = ["fsck"]

FAULTY_EXIT = 4


@click.command()
@click.argument("location", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--policy", metavar="FILE|VKEY", help="Whose signatures to trust.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def fsck(
    context: click.Context, location: Path, policy: str | None, as_json: bool
) -> None:
    """List every fault of a log with its file, its place and what would help.

    DIR is a server's data directory or a log directory. Unlike `verify` this goes on
    after the first fault. Nothing is changed; the server may run meanwhile.
    Exit code 0: no fault; 4: faults; 2: not a log; 7: not readable.
    """
    from stoilo.audit.read.fsck import fsck_log  # noqa: PLC0415 - loads cryptography
    from stoilo.cli.audit_read import read_policy  # noqa: PLC0415 - as above

    report = fsck_log(location, None if policy is None else read_policy(policy))
    click.echo(render_json(report) if as_json else render_report(report))
    if not report.is_sound:
        context.exit(FAULTY_EXIT)


def render_json(report: FsckReport) -> str:
    """Return the machine's form of a report."""
    return json.dumps({"sound": report.is_sound, **dataclasses.asdict(report)})


def render_report(report: FsckReport) -> str:
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
