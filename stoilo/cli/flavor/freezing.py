"""`stoilo flavor lock | build | compare`: frozen trees, from committed locks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from stoilo.cli.output import FILE, FOLDER, JSON, read_file, say
from stoilo.cli.shell import complete_flavor
from stoilo.cli.sources import read_source
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.frozen_tree import parse_tree, platform_name, tree_digest
from stoilo.flavors import lock as locks
from stoilo.flavors.build import BuiltPart, build_flavor, check_flavor
from stoilo.flavors.comparison import LoadedTree, compare_trees, load_tree
from stoilo.flavors.freeze import base_python
from stoilo.flavors.manifest import (
    FlavorManifest,
    find_flavor,
    foreign_ids,
    parse_manifest,
    shipped_manifest,
)
from stoilo.signer.part_building import part_record, render_part

_LOCK_BYTES = 16 << 20
_MANIFEST_BYTES = 16 << 20
_PATH = click.Path(path_type=Path, exists=True)
_SHOWN = 40


@click.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_flavor)
@click.option("--lock", "lock_file", type=FILE, help="Lock of a manifest of your own.")
@click.option(
    "--output", required=True, type=FOLDER, help="A directory that is new or empty."
)
@click.option("--python", type=FILE, help="Interpreter to freeze with.")
@click.option(
    "--serial",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Higher than every published one of this part.",
)
@click.option("--version", "version", default="", help="For people.")
@JSON
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
    flavor, manifest = find_manifest(name)
    lock_data = None if lock_file is None else read_file(lock_file, _LOCK_BYTES)
    built = build_flavor(flavor, manifest, output, lock=lock_data, python=python)
    record = part_record(built, flavor, version or flavor.digest[:16], serial)
    (built.targets / f"{built.platform}.json").write_bytes(render_part(record))
    _show_built(built, as_json=as_json)


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


def _show_built(built: BuiltPart, *, as_json: bool) -> None:
    places = {"archive": str(built.archive), "targets": str(built.targets)}
    text = (
        f"{built.part} for {built.platform}, Python {built.python}\n"
        f"tree     {built.tree}  {built.files} files, {built.size:,} bytes\n"
        f"archive  {built.archive_digest}  {built.archive_size:,} bytes\n"
        f"files of a release: {built.targets}"
    )
    say(dataclasses.asdict(built) | places, text, as_json=as_json)


@click.command()
@click.argument("name", metavar="NAME|FILE", shell_complete=complete_flavor)
@click.option("--output", type=FILE, help="Default: stdout.")
@click.option("--check", is_flag=True, help="Compare with the committed lock instead.")
@click.option("--python", type=FILE, help="Interpreter to resolve for.")
@JSON
def lock(
    name: str,
    output: Path | None,
    check: bool,
    python: Path | None,
    *,
    as_json: bool,
) -> None:
    """Let pip choose the wheels of a flavor, each with its digest, for this machine.

    NAME is a shipped flavor, or `verifier` or `tools`. A lock is for one platform: run it on
    each. Review what changed and commit it; builds take a lock as it is.
    """
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
    text = "" if check or output is not None else data.decode("ascii").rstrip("\n")
    say({"part": part, "lock": data.decode("ascii")}, text, as_json=as_json)


@click.command()
@click.argument("first", type=_PATH, metavar="A")
@click.argument("second", type=_PATH, metavar="B", required=False)
@click.option("--tree", "wanted", metavar="SHA256|FILE", help="Which tree A must be.")
@click.option("--archive", "packed", metavar="SHA256", help="Which archive A must be.")
@JSON
def compare(
    first: Path,
    second: Path | None,
    *,
    wanted: str | None,
    packed: str | None,
    as_json: bool,
) -> None:
    """Hash every byte of a frozen tree and compare it with its manifest, or with B.

    A and B are outputs of builds, trees or archives. --tree takes the digest or the
    `.tree` file of a release. Every path is named in which two builds differ. Exit code
    0: the same, 4: not.

    Example: stoilo flavor compare build/numeric other/numeric
    """
    if second is not None and first.resolve() == second.resolve():
        raise UsageError("STO-F014", "that is one build, named twice")
    one = load_tree(first)
    if packed is not None and one.archive != packed:
        raise TrustError("STO-F006", f"{first.name} is not the archive {packed[:16]}…")
    if wanted is not None and one.digest != _digest_of(wanted):
        raise TrustError("STO-F006", f"{first.name} holds the tree {one.digest[:16]}…")
    if second is not None:
        _compare(one, load_tree(second), first.name, as_json=as_json)
        return
    own = "Compared with its own manifest; --tree compares with a release's."
    text = f"{first.name} holds: {len(one.tree.files)} files, tree {one.digest}"
    say(_summary(one), text if wanted else f"{text}\n{own}", as_json=as_json)


def _summary(loaded: LoadedTree) -> dict[str, object]:
    tree = loaded.tree
    document: dict[str, object] = {
        "verified": True,
        "part": tree.part,
        "platform": tree.platform,
        "tree": loaded.digest,
        "files": len(tree.files),
        "bytes": tree.size,
    }
    if loaded.archive:
        document |= {"archive": loaded.archive, "packed": loaded.archive_size}
    return document


def _digest_of(wanted: str) -> str:
    file = Path(wanted)
    if not file.is_file():
        return wanted
    data = read_file(file, _MANIFEST_BYTES)
    parse_tree(data)
    return tree_digest(data)


def _compare(one: LoadedTree, other: LoadedTree, name: str, *, as_json: bool) -> None:
    """Show in what two builds differ; raises ``STO-F006`` when they do."""
    found = compare_trees(one, other)
    lines = [f"{row.path or name}: {row.what}" for row in found[:_SHOWN]]
    record = {
        "equal": not found,
        "trees": [one.digest, other.digest],
        "differences": found,
    }
    equal = f"equal: {len(one.tree.files)} files, tree {one.digest}"
    say(record, "\n".join(lines) or equal, as_json=as_json)
    if found:
        more = "" if len(found) <= _SHOWN else f", {len(found) - _SHOWN} more not shown"
        raise TrustError("STO-F006", f"the builds differ in {len(found)} paths{more}")
