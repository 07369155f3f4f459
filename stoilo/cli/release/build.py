"""`stoilo release build`: verifier, launcher and flavors for one release, in one directory."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.cli.flavor.freezing import find_manifest
from stoilo.cli.keys import read_small
from stoilo.cli.output import FILE, FOLDER, JSON, say
from stoilo.cli.release.ceremony_folder import read_floors
from stoilo.flavors.build import BuiltPart
from stoilo.signer.part_building import build_parts, built_file


@click.command()
@click.option(
    "--output", required=True, type=FOLDER, help="A directory that is new or empty."
)
@click.option(
    "--root", required=True, type=FILE, help="Root metadata that the verifier trusts."
)
@click.option(
    "--origin", required=True, help="The project's origin, as the log has it."
)
@click.option(
    "--serial",
    required=True,
    type=click.IntRange(1),
    help="Higher than every published serial of these parts.",
)
@click.option("--version", "version", default="", help="For people. Default: serial.")
@click.option("--commit", default="", help="Commit of the source, for the built file.")
@click.option(
    "--flavor", "flavors", multiple=True, help="Also a flavor; may be given again."
)
@click.option("--floor", "floors", multiple=True, metavar="PART=SERIAL")
@click.option("--python", type=FILE, help="Interpreter to freeze with.")
@JSON
def build(
    output: Path,
    root: Path,
    *,
    origin: str,
    serial: int,
    version: str,
    commit: str,
    flavors: tuple[str, ...],
    floors: tuple[str, ...],
    python: Path | None,
    as_json: bool,
) -> None:
    """Freeze the verifier for one root, build its launcher, and flavors if asked for.

    DIR then holds verifier/, launcher/ and flavor/ under the names that a release gives
    them. Build it on two machines, compare, attest, then hand DIR to `stoilo release
    request` or `init`. Whether the root is one of development or of a rehearsal is read
    from its mark: only a verifier built for such a root accepts one.

    Example: stoilo release build --output build --root root.json --origin lab --serial 1
    """
    version = version or str(serial)
    facts = built_file(
        read_small(root), origin, serial, version, commit, read_floors(floors)
    )
    found = [find_manifest(name) for name in flavors]
    made = build_parts(output, facts, found, version, serial, python=python)
    _show(made, output, as_json=as_json)


def _show(made: list[BuiltPart], output: Path, *, as_json: bool) -> None:
    rows, lines = [], []
    for part in made:
        row = {"part": part.part, "tree": part.tree, "archive": part.archive_digest}
        rows.append(row | {"size": part.archive_size})
        lines.append(f"{part.part:<10} tree {part.tree}  {part.archive_size:,} bytes")
    lines.append(f"Next: build again elsewhere and compare, then sign: {output}")
    say({"output": str(output), "parts": rows}, "\n".join(lines), as_json=as_json)
