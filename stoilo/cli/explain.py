"""`stoilo explain`: what a code means, and the reference page of all of them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from stoilo.core.codebook import CodeEntry, find_entry, load_codebook, render_entry

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
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="Every code's page.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
def explain(code: str | None, everything: bool, output: str, as_json: bool) -> None:
    """Say what an error CODE means and what to do; without one, list them.

    Example: stoilo explain STO-P040
    """
    output = "json" if as_json else output
    if code is not None:
        entry = find_entry(code)
        click.echo(_render([entry], output, listing=False), nl=False)
        return
    entries = list(load_codebook().values())
    listing = output == "text" and not everything
    click.echo(_render(entries, output, listing=listing), nl=False)


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
