"""Frozen trees wherever they lie (a directory, an archive), and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.frozen_tree import (
    MANIFEST_BYTES,
    MANIFEST_NAME,
    Source,
    Tree,
    TreeFile,
    XzReader,
    parse_tree,
    read_any_archive,
    render_tree,
    tree_digest,
)
from stoilo.flavors.packing import describe_tree, hash_file

_XZ_MAGIC = b"\xfd7zXZ\x00"


@dataclass(frozen=True, slots=True)
class LoadedTree:
    """A tree whose bytes have all been hashed."""

    tree: Tree  # what is really there
    digest: Digest  # its tree digest
    # SHA-256 of the archive that it was read from; empty for a directory
    archive: str = ""
    archive_size: int = 0  # bytes of that archive


@contextmanager
def open_archive(path: Path) -> Iterator[Source]:
    """Open an archive for reading, decompressed when it is an ``.xz`` file."""
    with path.open("rb") as file:
        compressed = file.read(len(_XZ_MAGIC)) == _XZ_MAGIC
        file.seek(0)
        yield XzReader(file) if compressed else file


def load_tree(path: Path) -> LoadedTree:
    """Hash the frozen tree at `path`: the output of a build, a tree, or an archive.

    Raises:
        UsageError: ``STO-F014``, there is none.
        TrustError: ``STO-F006``, it is broken, or differs from its own manifest.
    """
    if path.is_dir():
        inner = path / "tree"
        return _load_directory(inner if (inner / MANIFEST_NAME).is_file() else path)
    if not path.is_file():
        raise _nothing(path)
    with open_archive(path) as stream:
        members = read_any_archive(stream)
        manifest = b"".join(next(members).chunks)
        for member in members:
            for _ in member.chunks:
                pass
    digest, size = hash_file(path)
    return LoadedTree(parse_tree(manifest), tree_digest(manifest), digest, size)


def _load_directory(directory: Path) -> LoadedTree:
    """Hash a directory and compare it with the manifest in it."""
    file = directory / MANIFEST_NAME
    if not file.is_file() or file.is_symlink():
        raise _nothing(directory)
    with file.open("rb") as stream:
        manifest = stream.read(MANIFEST_BYTES + 1)
    listed = parse_tree(manifest)
    found = describe_tree(directory, listed.part, listed.platform)
    if render_tree(found) != manifest:
        before = {one.path: one for one in listed.files}
        now = {one.path: one for one in found.files}
        paths = sorted(p for p in before | now if before.get(p) != now.get(p))
        raise TrustError(
            "STO-F006",
            f"{directory} is not what its manifest lists: {', '.join(paths)[:300]}",
        )
    return LoadedTree(found, tree_digest(manifest))


def _nothing(path: Path) -> UsageError:
    return UsageError(
        "STO-F014",
        f"{str(path)[:200]!r} is neither a frozen tree nor an archive of one",
        hint="name the output directory of a build, or an archive",
    )


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
