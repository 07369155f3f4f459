"""`stoilo flavor build` and `lock`: frozen trees from committed locks, and the locks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.cli.policy import read_source
from stoilo.core.errors import UsageError
from stoilo.flavors.manifest import (
    FlavorManifest,
    find_flavor,
    foreign_ids,
    parse_manifest,
    shipped_manifest,
)

if TYPE_CHECKING:
    from stoilo.flavors.build import BuiltPart


_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)
build_options = (
    click.option(
        "--output", required=True, type=_FOLDER, help="A directory that is new or empty."
    ),
    click.option("--python", type=_FILE, help="Interpreter to freeze with."),
    click.option(
        "--serial", type=click.IntRange(1), default=1, show_default=True,
        help="Higher than every published one of this part.",
    ),
    click.option("--version", "version", default="", help="For people."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object."),
)  # fmt: skip


@click.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--lock", "lock_file", type=_FILE, help="Lock of a manifest of your own.")
@build_options[0]
@build_options[1]
@build_options[2]
@build_options[3]
@build_options[4]
def build(
    name: str,
    lock_file: Path | None,
    output: Path,
    python: Path | None,
    serial: int,
    version: str,
    as_json: bool,
) -> None:
    """Freeze a flavor below DIR: its tree, and the files that a release names.

    NAME is a shipped flavor (or its id), FILE a manifest of your own with --lock. Two builds
    of one commit on one base system are byte-equal: `stoilo flavor compare DIR1 DIR2`.

    Example: stoilo flavor build numeric --output build/numeric
    """
    from stoilo.flavors.build import build_flavor  # noqa: PLC0415 - loads the levels
    from stoilo.signer.part_building import part_record, render_part  # noqa: PLC0415

    flavor, manifest = find_manifest(name)
    lock_data = None if lock_file is None else read_source(str(lock_file))
    built = build_flavor(flavor, manifest, output, lock=lock_data, python=python)
    record = part_record(built, flavor, version or flavor.digest[:16], serial)
    (built.targets / f"{built.platform}.json").write_bytes(render_part(record))
    show_built(built, as_json=as_json)


def find_manifest(name: str) -> tuple[FlavorManifest, bytes]:
    """Return a flavor and its file's bytes: from a path, or a shipped one by name or id.

    Raises:
        UsageError: ``STO-P003``, ``STO-P002``, ``STO-U004``.
    """
    if Path(name).suffix in {".yaml", ".yml"} or "/" in name:
        data = read_source(name)
        stem = Path(name).stem.lower().replace("_", "-")
        flavor = parse_manifest(
            data, foreign_ids().get(parse_manifest(data).alias, stem)
        )
        return flavor, data
    flavor = find_flavor(name)
    return flavor, shipped_manifest(flavor)


def show_built(built: BuiltPart, *, as_json: bool) -> None:
    """Print what a build made."""
    if as_json:
        fields = dataclasses.asdict(built)
        fields |= {"archive": str(built.archive), "targets": str(built.targets)}
        click.echo(json.dumps(fields))
        return
    click.echo(f"{built.part} for {built.platform}, Python {built.python}")
    click.echo(f"tree     {built.tree}  {built.files} files, {built.size:,} bytes")
    click.echo(f"archive  {built.archive_digest}  {built.archive_size:,} bytes")
    click.echo(f"files of a release: {built.targets}")


@click.command()
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Default: stdout."
)
@click.option("--check", is_flag=True, help="Compare with the committed lock instead.")
@click.option("--python", type=_FILE, help="Interpreter to resolve for.")
def lock(name: str, output: Path | None, check: bool, python: Path | None) -> None:
    """Let pip choose the wheels of a flavor, each with its digest, for this machine.

    NAME is a shipped flavor, or `verifier` or `tools`. A lock is for one platform: run it on
    each. Review what changed and commit it; builds take a lock as it is.
    """
    from stoilo.core.frozen_tree import platform_name  # noqa: PLC0415 - as above
    from stoilo.flavors import lock as locks  # noqa: PLC0415 - used here only
    from stoilo.flavors.build import check_flavor  # noqa: PLC0415 - loads the levels
    from stoilo.flavors.freeze import base_python  # noqa: PLC0415 - as above

    requirements: tuple[str, ...]
    if name in {"verifier", "tools"}:
        part, requirements = name, locks.base_requirements(name)
    else:
        flavor, _ = find_manifest(name)
        check_flavor(flavor)
        part = flavor.name
        requirements = (*locks.base_requirements("runtime"), *flavor.requirements)
    found = locks.resolve_lock(
        part, platform_name(), requirements, python or base_python()
    )
    data = locks.render_lock(found)
    if check and data != locks.load_lock(part, platform_name()):
        raise UsageError(
            "STO-F007",
            f"the committed lock of {part} is not what would be chosen today",
            hint=f"see the difference: stoilo flavor lock {part}",
        )
    if output is not None:
        output.write_bytes(data)
    elif not check:
        click.echo(data.decode("ascii"), nl=False)
