"""A directory of built parts: what builders attest, and as changes to a release.

    DIR/launcher/<platform>         and .json
    DIR/verifier/<platform>.tar     and .json, .tree, .sbom.json
    DIR/flavor/<name>/<platform>.tar.xz  and .json, .tree, .sbom.json; manifest.yaml
    DIR/builds/<part>/<platform>/<builder>.json

Files lie under the names that targets metadata gives them. Trust: the directory is a
builder's; every file must be what its part's record says, and the review asks for the
builders' attestations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import read_bounded
from stoilo.executor.verifier.targets import PartFile, part_target, read_target
from stoilo.flavors.packing import hash_file
from stoilo.signer.attestations import BuildInputs, BuildTool, BuiltLibrary
from stoilo.signer.ceremony.folder import NamedBytes
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.pairing import read_tree
from stoilo.signer.roles import ceremony_bounds

MAX_BOM_BYTES: Final = 16 * 1024**2
TOOLS: Final = ("pyinstaller", "pyinstaller-hooks-contrib", "cyclonedx-bom", "pip")
_RECORDS: Final = ("launcher/*.json", "verifier/*.json", "flavor/*/*.json")
_SUFFIXES: Final = {"launcher": "", "verifier": ".tar"}
_BUILD = re.compile(r"[a-z0-9-]{1,32}/[a-z0-9_]+-[a-z]+/[0-9a-f]{8,64}\.json")


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


@dataclass(frozen=True, slots=True)
class FoundBuild:
    """One build whose files are those that its record names."""

    part: PartFile
    files: tuple[NewTarget, ...]


def find_builds(directory: Path) -> tuple[FoundBuild, ...]:
    """Return every build below `directory`, checked against its files.

    Raises ``STO-K051`` when there is none; ``STO-K056`` when a file is missing or not
    what its record says; codes of records and archives.
    """
    found = tuple(
        _build(directory, record)
        for pattern in _RECORDS
        for record in sorted(directory.glob(pattern))
        if not record.name.endswith(".sbom.json")
    )
    if not found:
        raise UsageError(
            "STO-K051",
            f"{directory.name} holds no built part",
            hint="name the output of `stoilo flavor build` or `stoilo release build`",
        )
    return found


def read_parts_from(directory: Path) -> Changes:
    """Return the changes that publish every part below `directory`; as `find_builds`."""
    put = (one for build in find_builds(directory) for one in build.files)
    return Changes(tuple({one.name: one for one in put}.values()))


def read_inputs(build: FoundBuild, commit: str, source_date_epoch: int) -> BuildInputs:
    """Return what this builder says went in: tools here, libraries by the bill.

    Args:
        build: as found.
        commit: of the source, hex; empty when unsaid.
        source_date_epoch: Unix seconds.

    Raises:
        UsageError: STO-U003 for a commit that is none.
        TrustError: STO-F034 for a bill of materials that is missing or cannot be read.
    """
    part = build.part
    if part.part != "launcher" and not (part.tree and part.sbom):
        raise TrustError("STO-F034", f"{part.part} lacks a tree or bill of materials")
    made = BuildInputs(
        commit, source_date_epoch, tuple(_tools()), tuple(_libraries(build))
    )
    try:
        return msgspec.convert(msgspec.to_builtins(made), type=BuildInputs)
    except msgspec.ValidationError as error:
        raise UsageError("STO-U003", f"not a commit or a time: {error}") from error


def _build(directory: Path, record: Path) -> FoundBuild:
    name = record.relative_to(directory).as_posix()
    data = _small(record, name)
    part = read_target(data, PartFile, name)
    return FoundBuild(part, tuple(_files(directory, name, data, part)))


def _files(
    directory: Path, name: str, data: bytes, part: PartFile
) -> Iterator[NewTarget]:
    """Yield one part's files, checked against its record."""
    base = part_target(part.part, part.platform)
    if name != f"{base}.json":
        raise TrustError("STO-K056", f"{name} is the record of {base}")
    yield NewTarget.of(name, data)
    archive = base + _SUFFIXES.get(part.part, ".tar.xz")
    file = _expected(directory, archive, part.archive.sha256)
    if file.size != part.archive.size:
        raise TrustError("STO-K056", f"{name} states another size of its archive")
    yield file
    if part.tree:
        _check_archive(directory / archive, archive, part.tree)
        yield _expected(directory, f"{base}.tree", part.tree)
    if part.sbom:
        yield _expected(directory, f"{base}.sbom.json", part.sbom)
    if part.flavor:
        yield _expected(directory, f"flavor/{part.part}/manifest.yaml", part.flavor)


def _tools() -> Iterator[BuildTool]:
    for name in TOOLS:
        try:
            yield BuildTool(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            continue


def _libraries(build: FoundBuild) -> Iterator[BuiltLibrary]:
    """Yield the system libraries that a build's bill of materials lists."""
    for file in build.files:
        if file.name.endswith(".sbom.json"):
            bom = file.content
            data = bom if isinstance(bom, bytes) else read_bounded(bom, MAX_BOM_BYTES)
            yield from read_libraries(data)


def read_libraries(bom: bytes) -> Iterator[BuiltLibrary]:
    """Yield the system libraries that a bill of materials (CycloneDX) lists."""
    try:
        components = msgspec.json.decode(bom, type=_Bom).components
    except msgspec.MsgspecError as error:
        raise TrustError("STO-F034", "the bill of materials cannot be read") from error
    for one in components:
        if one.reference.startswith("library:"):
            digests = [row.content for row in one.hashes if row.alg == "SHA-256"]
            names = [
                row.value
                for row in one.properties
                if row.name == "stoilo:debian-package"
            ]
            package = " ".join([*names, one.version]).strip()
            yield BuiltLibrary(one.name, "".join(digests[:1]), package)


def _expected(directory: Path, name: str, digest: str) -> NewTarget:
    """Return file `name`, which must have `digest`."""
    path = directory / name
    # A link could point to another file when it is copied.
    if path.is_symlink() or not path.is_file():
        raise TrustError("STO-K056", f"{name} is missing beside its record")
    found, size = hash_file(path)
    if found != digest:
        raise TrustError(
            "STO-K056",
            f"{name} is not the file that its record names",
            hint="build the part again into an empty directory",
        )
    small = size <= ceremony_bounds().metadata_bytes
    return NewTarget(name, Digest(digest), size, path.read_bytes() if small else path)


def _check_archive(path: Path, name: str, tree: str) -> None:
    """Read an archive to its end: it holds exactly its tree."""
    # Volunteers refuse any other; here somebody can still build it again.
    try:
        with path.open("rb") as file:
            read_tree(file, tree)
    except OSError as error:
        raise TrustError("STO-K056", f"{name} cannot be read") from error


def _small(path: Path, name: str) -> bytes:
    try:
        return read_bounded(path, ceremony_bounds().metadata_bytes)
    except OSError as error:
        raise TrustError(
            "STO-K056", f"{name} cannot be read: {error.strerror}"
        ) from error


def read_attestations(directory: Path) -> tuple[NamedBytes, ...]:
    """Return what lies below ``DIR/builds``; whether it holds, the review says."""
    found = []
    for path in sorted((directory / "builds").rglob("*.json")):
        name = path.relative_to(directory / "builds").as_posix()
        if _BUILD.fullmatch(name) and not path.is_symlink():
            found.append((name, _small(path, name)))
    return tuple(found)


def drop_part(names: set[str], part: str, platform: str = "") -> tuple[str, ...]:
    """Return which of a release's target `names` belong to a part.

    Raises ``STO-K054`` when none does.
    """
    prefix = part_target(part, platform)
    if not platform:
        found = [name for name in names if name.startswith(prefix)]
    else:
        found = [
            name for name in names if re.fullmatch(rf"{re.escape(prefix)}(\..+)?", name)
        ]
    if not found:
        raise UsageError(
            "STO-K054", f"the release has no part {part[:40]!r} {platform}"
        )
    return tuple(sorted(found))
