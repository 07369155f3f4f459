"""The builds in a builder's own folder, before he attests them.

A build is a part record (``stoilo-part/1``) with the files that it names beside it, under
whatever names. Each file is hashed, and the record must find every one of its digests among
them; the archive must hold the tree that it names. So a builder cannot sign a record that
does not fit what he built.

Trust: the folder is the builder's own; sizes are bounded all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoilo.core.errors import StoiloError, TrustError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.executor.verifier.targets import PartFile, read_target
from stoilo.flavors.tree import hash_file
from stoilo.signer.attestations import BuildInputs, BuildTool, BuiltLibrary
from stoilo.signer.pairing import read_tree

MAX_FOLDERS: Final = 4096
MAX_BOM_BYTES: Final = 16 * 1024**2
TOOLS: Final = ("pyinstaller", "pyinstaller-hooks-contrib", "cyclonedx-bom", "pip")
_LAUNCHER: Final = "launcher"


@dataclass(frozen=True, slots=True)
class FoundBuild:
    """One build whose files fit its record.

    Attributes:
        part: the record.
        record: the record's file.
        bom: the bill of materials, empty for a launcher.
    """

    part: PartFile
    record: Path
    bom: bytes


class _Property(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class _Hash(msgspec.Struct, frozen=True):
    alg: str = ""
    content: str = ""


class _Component(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""
    reference: str = msgspec.field(default="", name="bom-ref")
    hashes: tuple[_Hash, ...] = ()
    properties: tuple[_Property, ...] = ()


class _Bom(msgspec.Struct, frozen=True):
    """What of a CycloneDX bill of materials is repeated in an attestation."""

    components: Annotated[tuple[_Component, ...], msgspec.Meta(max_length=8192)] = ()


def find_builds(folder: Path) -> tuple[FoundBuild, ...]:
    """Return every build below `folder`, checked against its files.

    Raises:
        UsageError: STO-F034 when there is none.
        TrustError: STO-F034 when a record and its files do not fit; codes of archives.
    """
    found = tuple(
        _check_build(path, part)
        for path in sorted(_records(folder))
        if (part := _read_record(path)) is not None
    )
    if not found:
        raise UsageError(
            "STO-F034",
            f"{folder.name} holds no build",
            hint="name the output of `stoilo flavor build` or `stoilo release build`",
        )
    return found


def read_inputs(build: FoundBuild, commit: str, source_date_epoch: int) -> BuildInputs:
    """Return what this builder says went in: tools here, libraries by the bill.

    Args:
        build: as found.
        commit: of the source, hex; empty when unsaid.
        source_date_epoch: Unix seconds.

    Raises:
        UsageError: STO-U003 for a commit that is none.
        TrustError: STO-F034 for a bill of materials that cannot be read.
    """
    made = BuildInputs(
        commit, source_date_epoch, tuple(_tools()), tuple(_libraries(build.bom))
    )
    try:
        return msgspec.convert(msgspec.to_builtins(made), type=BuildInputs)
    except msgspec.ValidationError as error:
        raise UsageError("STO-U003", f"not a commit or a time: {error}") from error


def _records(folder: Path) -> Iterator[Path]:
    """Yield files that may be part records; trees themselves are not searched."""
    for number, path in enumerate(folder.rglob("*.json")):
        if number > MAX_FOLDERS:
            raise UsageError("STO-F034", f"{folder.name} holds too many files")
        parts = path.relative_to(folder).parts
        # Trees of frozen programs hold JSON files of their own.
        if "_internal" not in parts and "builds" not in parts and path.is_file():
            yield path


def _read_record(path: Path) -> PartFile | None:
    """Return the record in `path`, None when it is another kind of file."""
    with path.open("rb") as file:
        data = file.read(BOUNDS.metadata_bytes + 1)
    if b'"stoilo-part/1"' not in data:
        return None
    try:
        return read_target(data, PartFile, path.name)
    except StoiloError as error:
        raise TrustError("STO-F034", f"{path.name}: {error.message}") from error


def _check_build(path: Path, part: PartFile) -> FoundBuild:
    """Return a build once each digest of its record is that of a file beside it."""
    beside = _hash_files(path.parent)
    wanted = {"archive": part.archive.sha256, "tree": part.tree, "sbom": part.sbom}
    for what, digest in wanted.items():
        if digest and digest not in beside:
            raise TrustError(
                "STO-F034",
                f"{path.name}: no file beside it is the {what} of its record",
            )
    archive = beside[part.archive.sha256]
    if archive.stat().st_size != part.archive.size:
        raise TrustError("STO-F034", f"{path.name} states another size of its archive")
    if part.part != _LAUNCHER:
        if not part.tree or not part.sbom:
            raise TrustError(
                "STO-F034", f"{path.name} lacks a tree or bill of materials"
            )
        with archive.open("rb") as file:
            read_tree(file, part.tree)  # and nothing else is in it
    bom = beside[part.sbom].read_bytes()[:MAX_BOM_BYTES] if part.sbom else b""
    return FoundBuild(part, path, bom)


def _hash_files(folder: Path) -> Mapping[str, Path]:
    """Return digest → file of every regular file directly in `folder`."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink():
            found.setdefault(hash_file(path)[0], path)
    manifest = folder / "tree" / "MANIFEST"
    if manifest.is_file():
        found.setdefault(hash_file(manifest)[0], manifest)
    return found


def _tools() -> Iterator[BuildTool]:
    """Yield the build tools that are installed here."""
    for name in TOOLS:
        try:
            yield BuildTool(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            continue


def _libraries(bom: bytes) -> Iterator[BuiltLibrary]:
    """Yield the system libraries that a bill of materials lists."""
    if not bom:
        return
    try:
        components = msgspec.json.decode(bom, type=_Bom).components
    except msgspec.MsgspecError as error:
        raise TrustError("STO-F034", "the bill of materials cannot be read") from error
    for one in components:
        if one.reference.startswith("library:"):
            digests = [row.content for row in one.hashes if row.alg == "SHA-256"]
            package = " ".join(
                [
                    row.value
                    for row in one.properties
                    if row.name == "stoilo:debian-package"
                ]
                + [one.version]
            ).strip()
            yield BuiltLibrary(one.name, "".join(digests[:1]), package)
