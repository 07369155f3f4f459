"""Frozen trees and archives of any content, without building anything."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.digests import Digest
from stoilo.core.frozen_tree import platform_name, render_tree, tree_digest
from stoilo.executor.verifier.trees import WantedTree
from stoilo.flavors.packing import XzWriter, describe_tree, write_archive

__all__ = ["FILES", "MadeTree", "make_tree"]

FILES: Mapping[str, bytes] = {
    "stoilo-runtime": b"#!/bin/sh\n",
    "_internal/libone.so": b"library" * 1000,
    "_internal/deep/er/data.txt": b"data",
}
"""A small tree, as far as names go like a real one."""


@dataclass(frozen=True, slots=True)
class MadeTree:
    """A tree's archive on disk, and what a release would say of it."""

    archive: Path
    wanted: WantedTree
    manifest: bytes
    size: int


def make_tree(
    directory: Path, files: Mapping[str, bytes] = FILES, *, part: str = "pure"
) -> MadeTree:
    """Write `files` below the new `directory` and their archive beside it."""
    for path, data in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o755 if path.startswith("stoilo-") else 0o644)
    tree = describe_tree(directory, part, platform_name())
    manifest = render_tree(tree)
    stream = io.BytesIO()
    writer = XzWriter(stream)
    write_archive(directory, tree, writer)
    writer.close()
    data = stream.getvalue()
    archive = directory.with_name(f"{directory.name}.tar.xz")
    archive.write_bytes(data)
    wanted = WantedTree(
        tree_digest(manifest), Digest(hashlib.sha256(data).hexdigest()), len(data)
    )
    return MadeTree(archive, wanted, manifest, tree.size)
