"""`stoilo flavor verify` and `compare`: frozen trees and their archives."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.core.errors import TrustError, UsageError

if TYPE_CHECKING:
    from stoilo.flavors.comparison import LoadedTree


_PATH = click.Path(path_type=Path, exists=True)
_MANIFEST_BYTES = 16 << 20
_SHOWN = 40


def _summary(loaded: LoadedTree) -> dict[str, object]:
    tree = loaded.tree
    document: dict[str, object] = {
        "part": tree.part,
        "platform": tree.platform,
        "tree": loaded.digest,
        "files": len(tree.files),
        "bytes": tree.size,
    }
    if loaded.archive:
        document |= {"archive": loaded.archive, "packed": loaded.archive_size}
    return document


@click.command()
@click.argument("path", type=_PATH)
@click.option("--tree", "wanted", metavar="SHA256|FILE", help="Which tree it must be.")
@click.option("--archive", "packed", metavar="SHA256", help="Which archive it must be.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def verify(path: Path, wanted: str | None, packed: str | None, as_json: bool) -> None:
    """Hash every byte of a frozen tree or archive, and compare with its manifest.

    --tree takes the digest or the `.tree` file of a release. Exit code 0: it holds, 4: not.
    """
    from stoilo.flavors.comparison import load_tree  # noqa: PLC0415 - used here only

    loaded = load_tree(path)
    if packed is not None and loaded.archive != packed:
        raise TrustError("STO-F006", f"{path.name} is not the archive {packed[:16]}…")
    if wanted is not None and loaded.digest != _digest_of(wanted):
        raise TrustError(
            "STO-F006", f"{path.name} holds the tree {loaded.digest[:16]}…"
        )
    document = _summary(loaded)
    if as_json:
        click.echo(json.dumps({"verified": True, **document}))
        return
    click.echo(f"{path.name} holds: {document['files']} files, tree {loaded.digest}")
    if wanted is None:
        click.echo("Compared with its own manifest; --tree compares with a release's.")


def _digest_of(wanted: str) -> str:
    from stoilo.core.frozen_tree import parse_tree, tree_digest  # noqa: PLC0415 - as above

    file = Path(wanted)
    if not file.is_file():
        return wanted
    with file.open("rb") as stream:
        data = stream.read(_MANIFEST_BYTES + 1)
    parse_tree(data)
    return tree_digest(data)


@click.command()
@click.argument("first", type=_PATH, metavar="A")
@click.argument("second", type=_PATH, metavar="B")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Compare two builds of one part, byte by byte; name every path that differs.

    A and B are outputs of builds, trees or archives. Exit code 0: equal, 4: they differ.
    """
    from stoilo.flavors.comparison import compare_trees, load_tree  # noqa: PLC0415 - extra

    if first.resolve() == second.resolve():
        raise UsageError("STO-F014", "that is one build, named twice")
    one, other = load_tree(first), load_tree(second)
    found = compare_trees(one, other)
    if as_json:
        rows = [dataclasses.asdict(row) for row in found]
        trees = [one.digest, other.digest]
        click.echo(
            json.dumps({"equal": not found, "trees": trees, "differences": rows})
        )
    elif not found:
        click.echo(f"equal: {len(one.tree.files)} files, tree {one.digest}")
    for row in found[: 0 if as_json else _SHOWN]:
        click.echo(f"{row.path or first.name}: {row.what}")
    if found:
        more = "" if len(found) <= _SHOWN else f", {len(found) - _SHOWN} more not shown"
        raise TrustError("STO-F006", f"the builds differ in {len(found)} paths{more}")
