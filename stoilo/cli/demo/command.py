"""The `stoilo demo` command: run the scenario, print the table, exit by the claims."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from stoilo.cli.demo.parts import DemoParts, real_parts
from stoilo.cli.demo.scenario import PI_CALLS, ClaimBook, Scenario, render_claims
from stoilo.core.errors import StoiloError

HONEST_VOLUNTEERS = 2


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the claims as one object.")
def demo(as_json: bool) -> int:
    """Show the whole path on this machine; exit 0 only if every claim was checked."""
    return run_demo(real_parts(), as_json=as_json)


def run_demo(parts: DemoParts, *, as_json: bool = False) -> int:
    """Run the demo with `parts` in a temporary directory; returns the exit code."""
    console = Console(stderr=as_json)
    book, begun = ClaimBook(), time.monotonic()
    console.print(
        "stoilo demo: a server, a witness, two honest volunteers and one that cheats.\n"
        "All on this machine; keys are a development root in a temporary directory."
    )
    with tempfile.TemporaryDirectory(prefix="stoilo-demo-") as folder:
        _run(Path(folder), parts, book, console)
    if as_json:
        claims = [asdict(claim) for claim in book.claims]
        click.echo(json.dumps({"claims": claims, "all_hold": book.all_hold}))
    else:
        console.print(render_claims(book.claims))
    verdict = "all claims hold" if book.all_hold else "NOT every claim holds"
    console.print(f"{verdict}; {time.monotonic() - begun:.0f} s")
    return 0 if book.all_hold else 4


def _run(folder: Path, parts: DemoParts, book: ClaimBook, console: Console) -> None:
    columns = (TextColumn("    {task.description}"), BarColumn(), MofNCompleteColumn())
    deployment = parts.deploy(folder / "data", HONEST_VOLUNTEERS)
    with (
        parts.begin_witness(folder / "witness", deployment),
        deployment,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        bar = progress.add_task("items of the map", total=PI_CALLS, visible=False)

        def advance(done: int) -> None:
            progress.update(bar, completed=done, visible=done < PI_CALLS)

        scenario = Scenario(deployment, parts, book, progress.console.print, advance)
        try:
            scenario.run()
        except StoiloError as error:
            book.check("the demo ran to its end", holds=False, evidence=str(error))
