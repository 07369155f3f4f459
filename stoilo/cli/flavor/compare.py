"""`stoilo flavor compare`: a frozen tree against its manifest, a release's, or another."""

from __future__ import annotations

from pathlib import Path

import click

from stoilo.cli.output import JSON, read_file, say
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.frozen_tree import parse_tree, tree_digest
from stoilo.flavors.comparison import LoadedTree, compare_trees, load_tree

_PATH = click.Path(path_type=Path, exists=True)
_MANIFEST_BYTES = 16 << 20
_SHOWN = 40


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
