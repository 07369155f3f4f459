"""`stoilo explain`: what a code means, what levels make of a source."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.cli.output import say
from stoilo.cli.policy import REFUSED
from stoilo.cli.shell import complete_code
from stoilo.cli.sources import read_as_task, read_policy, read_source
from stoilo.core.codebook import CodeEntry, find_entry, load_codebook, render_entry
from stoilo.core.levels import load_levels
from stoilo.policies.explanation import (
    explain_source,
    render_source,
)
from stoilo.policies.gate import GateRequest
from stoilo.policies.jailed import check_in_child

if TYPE_CHECKING:
    from stoilo.core.types import Verdict

_HEAD = """\
# Error codes

Every refusal and failure of stoilo has a stable code. `stoilo explain CODE` prints the
same text as this page, which is made by `stoilo explain --all --format markdown`.
"""

_AREAS = {
    "A": "Admission and verification",
    "C": "Client",
    "D": "Data and digests",
    "E": "Engine",
    "G": "Language layer",
    "K": "Keys and signer",
    "L": "Log",
    "P": "Policy and gate",
    "R": "Server",
    "S": "Kernel layer",
    "T": "Training",
    "U": "Usage",
    "X": "Executor",
}


@click.command()
@click.argument(
    "subject", metavar="CODE|FILE", required=False, shell_complete=complete_code
)
@click.option(
    "--entry", default="", help="Of FILE, the function; default: the last def."
)
@click.option("--policy", "policy_file", help="Policy file; default: the shipped one.")
@click.option("--all", "everything", is_flag=True, help="Every code's page.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
def explain(
    subject: str | None,
    entry: str,
    policy_file: str | None,
    everything: bool,
    output: str,
    as_json: bool,
) -> int:
    """Say what an error CODE means and what to do; without one, list them.

    Of FILE (- for stdin): what every level makes of it; nothing in it is run. Exit code
    0: some open level admits it, 3: none does.

    Example: stoilo explain STO-P040
    """
    output = "json" if as_json else output
    if subject is None:
        entries = list(load_codebook().values())
        listing = output == "text" and not everything
        click.echo(_render(entries, output, listing=listing), nl=False)
        return 0
    if subject == "-" or Path(subject).is_file():
        return _explain_source(subject, entry, policy_file, as_json=output == "json")
    click.echo(_render([find_entry(subject)], output, listing=False), nl=False)
    return 0


def _explain_source(
    file: str, entry: str, policy_file: str | None, *, as_json: bool
) -> int:
    source, rules = read_as_task(read_source(file)), read_policy(policy_file)

    def judge(level: str) -> Verdict:
        return check_in_child(GateRequest(source, None, entry, level, rules))

    explained = explain_source(judge, rules, load_levels())
    say(explained, render_source(explained, file), as_json=as_json)
    return 0 if explained.lowest else REFUSED


def render_markdown(entries: list[CodeEntry]) -> str:
    """Return the reference page of `entries`, by area."""
    parts = [_HEAD]
    area = ""
    for entry in entries:
        letter = entry.code[4]
        if letter != area:
            area = letter
            parts.append(f"## {_AREAS.get(letter, letter)}\n")
        parts.append(
            f"### {entry.code}: {entry.title}\n\n"
            f"{entry.why}\n\n**Do:** {entry.action}\n"
        )
    return "\n".join(parts)


def _render(entries: list[CodeEntry], output: str, *, listing: bool) -> str:
    if output == "json":
        pages = [asdict(entry) for entry in entries]
        return json.dumps(pages[0] if len(pages) == 1 else pages) + "\n"
    if output == "markdown":
        return render_markdown(entries)
    if listing:
        return "".join(f"{entry.code}  {entry.title}\n" for entry in entries)
    return "\n".join(render_entry(entry) for entry in entries)
