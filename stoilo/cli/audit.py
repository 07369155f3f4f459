"""`stoilo audit`: verify a log and fetch proofs. Read-only."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
import platformdirs

from stoilo.core.errors import StoiloError, TrustError, UsageError

if TYPE_CHECKING:
    from stoilo.audit.policy import LogPolicy
    from stoilo.audit.reader import LogReport

__all__ = ["audit"]


@click.group()
def audit() -> None:
    """Verify the log and fetch proofs; nothing is ever written."""


@audit.command()
@click.argument("location", metavar="DIR_OR_URL")
@click.option("--policy", metavar="FILE|VKEY", help="Whose signatures to trust.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(
    context: click.Context, location: str, policy: str | None, as_json: bool
) -> None:
    """Read every entry of a log and check it against its signed checkpoint.

    DIR_OR_URL is a server's data directory, a log directory or a log's URL.
    Exit code 0: it holds; 4: tampered; 2: not a log; 7: not reachable.
    """
    from stoilo.audit.reader import verify_log  # noqa: PLC0415 - loads cryptography

    try:
        trusted = None if policy is None else read_policy(policy)
        report = verify_log(location, trusted)
    except StoiloError as error:
        if not as_json:
            raise
        click.echo(render_refusal(error))
        context.exit(error.exit_code)
    click.echo(render_json(report) if as_json else render_report(report))


@audit.command()
@click.argument("task", metavar="TASK_ID|INDEX")
@click.option(
    "--data",
    metavar="DIR",
    envvar="STOILO_DATA",
    show_envvar=True,
    default=lambda: platformdirs.user_data_path("stoilo"),
    help="Data directory of the server, log directory or log URL.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prove(task: str, data: str | Path, as_json: bool) -> None:
    """Print the proof that a task's admission (or the leaf at INDEX) is in the log.

    The text is a C2SP tlog-proof; keep it as FILE.tlog-proof.
    """
    from stoilo.audit.prover import prove_leaf  # noqa: PLC0415 - loads cryptography

    found = prove_leaf(data, task)
    if not as_json:
        click.echo(found.proof.decode(), nl=False)
        return
    click.echo(
        json.dumps(
            {
                "index": found.index,
                "size": found.size,
                "leaf": base64.b64encode(found.leaf).decode(),
                "proof": found.proof.decode(),
            }
        )
    )


def read_policy(text: str) -> LogPolicy:
    """Return the policy of ``--policy``: a verifier key or a file's name.

    Raises:
        UsageError: ``STO-L003`` or ``STO-L004`` when it is malformed, ``STO-U004`` when
            the file cannot be read.
    """
    from stoilo.audit.policy import (  # noqa: PLC0415 - loads cryptography
        MAX_POLICY_BYTES,
        parse_policy,
        vkey_policy,
    )

    try:
        if "+" in text and not Path(text).exists():
            return vkey_policy(text)
        with Path(text).open("rb") as file:
            return parse_policy(file.read(MAX_POLICY_BYTES + 1))
    except TrustError as error:
        raise UsageError(error.code, error.message, hint=error.hint) from error
    except OSError as error:
        raise UsageError(
            "STO-U004", f"the policy cannot be read: {error.strerror}"
        ) from error


def render_json(report: LogReport) -> str:
    """Return the machine's form of a verified log."""
    return json.dumps({"verified": True, **dataclasses.asdict(report)})


def render_refusal(error: StoiloError) -> str:
    """Return the machine's form of a log that did not verify."""
    fault = {"code": error.code, "message": error.message, "hint": error.hint}
    return json.dumps({"verified": False, "error": fault})


def render_report(report: LogReport) -> str:
    """Return what a person reads about a verified log."""
    lines = [
        (
            f"The log {report.origin} holds: {report.size} leaves, "
            f"{report.tiles_checked} tiles checked."
        ),
        f"root {report.root}",
    ]
    if report.witnesses:
        lines.append(f"cosigned by {', '.join(report.witnesses)}")
    if report.unpublished:
        lines.append(f"{report.unpublished} acknowledged leaves await publication")
    if report.own_policy:
        lines.append(
            "The key came from the log itself; pass --policy to pin the one you trust."
        )
    return "\n".join(lines)
