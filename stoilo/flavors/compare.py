"""Two builds of one part: equal to the byte, or where they differ."""

from __future__ import annotations

from dataclasses import dataclass

from stoilo.flavors.loading import LoadedTree
from stoilo.flavors.tree import TreeFile

__all__ = ["Difference", "compare_trees"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that differs: how, in words."""

    path: str
    what: str


def compare_trees(one: LoadedTree, other: LoadedTree) -> tuple[Difference, ...]:
    """Return where two trees differ, by path; nothing when they are equal.

    Archives of equal trees are compared as files too: whoever signs one signs its bytes.
    """
    before = {file.path: file for file in one.tree.files}
    after = {file.path: file for file in other.tree.files}
    found = [
        Difference(path, _describe(before.get(path), after.get(path)))
        for path in sorted(before | after)
        if before.get(path) != after.get(path)
    ]
    heads = [(tree.part, tree.platform) for tree in (one.tree, other.tree)]
    if heads[0] != heads[1]:
        words = " and ".join(f"{part} for {platform}" for part, platform in heads)
        found.insert(0, Difference("MANIFEST", words))
    both_packed = one.archive and other.archive
    if not found and both_packed and one.archive != other.archive:
        found.append(Difference("", "equal trees, packed into different archives"))
    return tuple(found)


def _describe(before: TreeFile | None, after: TreeFile | None) -> str:
    if before is None:
        return "only in the second"
    if after is None:
        return "only in the first"
    if before.size != after.size:
        return f"{before.size:,} and {after.size:,} bytes"
    if before.digest != after.digest:
        return f"other bytes: {before.digest[:16]}… and {after.digest[:16]}…"
    return "a program in one of them only"
