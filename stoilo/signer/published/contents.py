"""Every target of a published release: its bytes, and what archives hold inside.

Trust: names and digests come from verified metadata; the files are hostile. An archive's
digest is checked over the whole file before a byte of it is decompressed or parsed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Final

from tuf.api.metadata import TargetFile, Targets

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.frozen_tree import parse_tree, tree_digest
from stoilo.core.types import BOUNDS
from stoilo.executor.verifier.targets import PART_RECORD, PartFile, read_target
from stoilo.executor.verifier.trust import travels
from stoilo.signer.ceremony.base_release import stored_name
from stoilo.signer.ceremony.built_parts import read_tree
from stoilo.signer.published.history import History, RoleVersion
from stoilo.signer.published.places import Place

MAX_TARGET_BYTES: Final = 4 * 1024**3
MAX_TREE_BYTES: Final = 16 * 1024**2
_CHUNK: Final = 1024 * 1024
_NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}(/[A-Za-z0-9][A-Za-z0-9._+-]{0,127}){0,3}"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A target whose bytes are those that the metadata names."""

    name: str  # as targets metadata names it
    path: str  # where it lies in the release
    sha256: str  # of its bytes
    md5: str  # of the same bytes, for BOINC
    size: int  # bytes
    data: bytes  # the bytes of a small file, empty for others


@dataclass(frozen=True, slots=True)
class Contents:
    """All targets of a release."""

    current: Mapping[str, CheckedFile]  # those in force, by name
    former: tuple[CheckedFile, ...]  # those of earlier versions that are still there
    paths: frozenset[str]  # the names of all their files in the release

    def former_parts(self) -> tuple[PartFile, ...]:
        """Return the records of parts that were in force before; raises ``STO-K013``."""
        return tuple(
            read_target(one.data, PartFile, one.name)
            for one in self.former
            if PART_RECORD.fullmatch(one.name)
        )


def stored_path(info: TargetFile) -> str:
    """Return where a target lies in the release; raises ``STO-K013`` for odd names."""
    digest = info.hashes.get("sha256", "")
    if set(info.hashes) != {"sha256"} or not _SHA256.fullmatch(digest):
        raise TrustError("STO-K013", f"{info.path[:80]!r} is not named by its SHA-256")
    if not _NAME.fullmatch(info.path) or not 0 <= info.length <= MAX_TARGET_BYTES:
        raise TrustError("STO-K013", f"{info.path[:80]!r} is no target of a release")
    return f"targets/{stored_name(info.path, digest)}"


def read_contents(place: Place, history: History) -> Contents:
    """Hash every target that any version of the metadata names.

    Those in force must all be there. Of earlier versions, the small ones must be, where
    files can be listed; archives of earlier releases may have been removed.

    Raises ``STO-K013`` what metadata says is impossible, a file is missing
    or is not the one named.
    """
    newest = {id(one) for one in history.newest()}
    current: dict[str, CheckedFile] = {}
    former: list[CheckedFile] = []
    checked: dict[str, CheckedFile] = {}
    names = place.names()
    for role in (*history.targets, *history.delegated):
        in_force = id(role) in newest
        for info in _infos(role):
            path = stored_path(info)
            # Nobody can say what an earlier release was without its small files.
            wanted = in_force or (names is not None and travels(info.path))
            if path not in checked:
                found = _check(place, path, info, wanted=wanted)
                if found is None:
                    continue
                checked[path] = found
            if in_force:
                current[info.path] = checked[path]
            else:
                former.append(checked[path])
    return Contents(current, tuple(former), frozenset(checked))


def check_archives(
    place: Place, contents: Contents, parts: Iterable[PartFile]
) -> Mapping[str, bytes]:
    """Check that each archive holds exactly the tree that its record names.

    Returns:
        Platform → the bytes of that verifier's own ``built.json``.

    Raises:
        TrustError: the codes of `stoilo.core.frozen_tree`;
            STO-F034 when a tree is of another part, its manifest is another, or a
            verifier lacks what it was built with.
    """
    built: dict[str, bytes] = {}
    for part in parts:
        if part.part == "launcher":
            continue
        base = part.target
        manifest = contents.current.get(f"{base}.tree")
        suffix = ".tar" if part.part == "verifier" else ".tar.xz"
        archive = contents.current.get(f"{base}{suffix}")
        if manifest is None or archive is None:
            raise TrustError("STO-K013", f"the release lacks archive or tree of {base}")
        found = _check_tree(place, part, manifest, archive)
        if part.part == "verifier":
            if not found:
                raise TrustError("STO-F034", f"the verifier in {base} knows no root")
            built[part.platform] = found
    return built


def read_program(place: Place, contents: Contents, launcher: PartFile) -> bytes:
    """Return a launcher's bytes, hashed before; raises ``STO-K013``."""
    name = launcher.target
    one = contents.current.get(name)
    if one is None:
        raise TrustError("STO-K013", f"the release lacks {name}")
    with _open(place, one.path, one.size) as file:
        data = file.read(one.size + 1)
    # It was hashed before; the place may give another file the second time.
    if content_digest(data) != one.sha256:
        raise TrustError("STO-K013", f"{name} changed while it was read")
    return data


def _check_tree(
    place: Place, part: PartFile, manifest: CheckedFile, archive: CheckedFile
) -> bytes:
    """Check one tree's manifest and archive; returns its ``built.json``, if it has one."""
    with _open(place, manifest.path, MAX_TREE_BYTES) as file:
        data = file.read()
    tree = parse_tree(data)
    if (tree.part, tree.platform, tree_digest(data)) != (
        part.part,
        part.platform,
        part.tree,
    ):
        raise TrustError(
            "STO-F034", f"the tree of {part.part} is not that of its record"
        )
    with _open(place, archive.path, archive.size) as file:
        if _hash(file)[0] != archive.sha256:
            raise TrustError("STO-K013", f"{archive.name} changed while it was read")
        file.seek(0)
        return read_tree(file, part.tree)


def _infos(role: RoleVersion) -> Iterator[TargetFile]:
    assert isinstance(role.signed, Targets)  # noqa: S101 - history holds no other
    for name, info in sorted(role.signed.targets.items()):
        if info.path != name:
            raise TrustError("STO-K013", f"{name[:80]!r} is named in two ways")
        yield info


def _check(
    place: Place, path: str, info: TargetFile, *, wanted: bool
) -> CheckedFile | None:
    """Return a target after hashing it, None for one that need not be there."""
    file = place.open(path, info.length) if wanted or place.names() else None
    if file is None:
        if wanted:
            raise TrustError("STO-K013", f"the release lacks {path}")
        return None
    with file:
        sha256, md5, size = _hash(file)
        if sha256 != info.hashes["sha256"] or size != info.length:
            raise TrustError(
                "STO-K013", f"{path} is not the file that the metadata names"
            )
        small = size <= BOUNDS.metadata_bytes and travels(info.path)
        file.seek(0)
        data = file.read() if small else b""
    return CheckedFile(info.path, path, sha256, md5, size, data)


def _open(place: Place, path: str, size: int) -> IO[bytes]:
    """Return a file that was there before, or raise ``STO-K013``."""
    file = place.open(path, size)
    if file is None:
        raise TrustError("STO-K013", f"{path} went away while it was read")
    return file


def _hash(file: IO[bytes]) -> tuple[str, str, int]:
    """Return SHA-256, MD5 and size of an open file."""
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    for piece in _pieces(file):
        sha256.update(piece)
        md5.update(piece)
        size += len(piece)
    return sha256.hexdigest(), md5.hexdigest(), size


def _pieces(file: IO[bytes]) -> Iterable[bytes]:
    return iter(lambda: file.read(_CHUNK), b"")
