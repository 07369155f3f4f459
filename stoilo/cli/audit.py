"""`stoilo audit`: verify a log and fetch proofs. Read-only but for the witness's own."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from stoilo.cli.audit_fsck import fsck
from stoilo.cli.audit_monitor import check_misbehaviour, monitor
from stoilo.cli.audit_read import check, export, prove, read_policy, search, show
from stoilo.cli.audit_retain import retain
from stoilo.cli.audit_revoke import revocations, revoke
from stoilo.cli.audit_witness import log_key, witness, witness_key
from stoilo.core.errors import StoiloError
from stoilo.core.plaintext import show_plainly

if TYPE_CHECKING:
    from stoilo.audit.read.reader import LogReport

__all__ = ["audit"]


@click.group()
def audit() -> None:
    """Verify a log, fetch proofs, be a witness, withdraw what must not run any more."""


for command in (show, search, prove, check, export):
    audit.add_command(command)
for command in (fsck, retain, monitor, check_misbehaviour):
    audit.add_command(command)
for command in (revoke, revocations, log_key, witness, witness_key):
    audit.add_command(command)


@audit.command()
@click.argument("location", metavar="DIR_OR_URL")
@click.option("--policy", metavar="FILE|VKEY", help="Whose signatures to trust.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(
    context: click.Context, location: str, policy: str | None, as_json: bool
) -> None:
    """Read every entry of a log and check it against its signed checkpoint.

    DIR_OR_URL is a server's data directory, a log directory, an exported bundle or a
    log's URL.
    Exit code 0: it holds; 4: tampered; 2: not a log; 7: not reachable.
    """
    from stoilo.audit.read.reader import verify_log  # noqa: PLC0415 - loads cryptography

    try:
        trusted = None if policy is None else read_policy(policy)
        report = verify_log(location, trusted)
    except StoiloError as error:
        if not as_json:
            raise
        from stoilo.cli.audit_text import render_refusal  # noqa: PLC0415 - as above

        click.echo(render_refusal(error))
        context.exit(error.exit_code)
    click.echo(render_json(report) if as_json else render_report(report))


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
