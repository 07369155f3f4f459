"""A directory of built parts: what builders attest, and as changes to a release.

    DIR/launcher/<platform>         and .json
    DIR/verifier/<platform>.tar     and .json, .tree, .sbom.json
    DIR/flavor/<name>/<platform>.tar.xz  and .json, .tree, .sbom.json; manifest.yaml
                                     or by the policy role: policy/flavor-<name>.<platform>…
    DIR/builds/<part>/<platform>/<builder>.json

Files lie under the names that targets metadata gives them. Trust: the directory is a
builder's; every file must be what its part's record says, and the review asks for the
builders' attestations.

Launcher, verifier and release belong together: the launcher starts one verifier, whose
digest it holds; the verifier knows one root, built into it. Each can be signed and rebuilt
equal and still be the wrong one for this release, and then every volunteer stops. So the
three are compared, before signing and after publishing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

import msgspec

from stoilo.core.digests import Digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import read_bounded
from stoilo.core.frozen_tree import XzReader, read_archive
from stoilo.executor.verifier.targets import PartFile, part_target, read_target
from stoilo.executor.verifier.trust import Built
from stoilo.flavors.launcher_build import describe_launcher
from stoilo.flavors.packing import hash_file
from stoilo.signer.ceremony.folder import NamedBytes
from stoilo.signer.ceremony.lists import library_targets
from stoilo.signer.ceremony.proposal import Changes, NewTarget
from stoilo.signer.roles import ceremony_bounds

_RECORDS: Final = ("launcher/*.json", "verifier/*.json", "flavor/*/*.json")
_SUFFIXES: Final = {"launcher": "", "verifier": ".tar"}
_BUILD = re.compile(r"[a-z0-9-]{1,32}/[a-z0-9_]+-[a-z]+/[0-9a-f]{8,64}\.json")


@dataclass(frozen=True, slots=True)
class FoundBuild:
    """One build whose files are those that its record names."""

    part: PartFile
    files: tuple[NewTarget, ...]


def find_builds(directory: Path) -> tuple[FoundBuild, ...]:
    """Return every build below `directory`, checked against its files.

    Raises ``STO-K050`` when there is none; when a file is missing or not
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
            "STO-K050",
            f"{directory.name} holds no built part",
            hint="name the output of `stoilo flavor build` or `stoilo release build`",
        )
    return found


def read_parts_from(directory: Path, *, by_policy: bool = False) -> Changes:
    """Return the changes that publish every part below `directory`; as `find_builds`.

    The files of the libraries that flavors name come along, as this package ships them.

    `by_policy`: whether the policy role alone is to name them, which can be flavors only.

    Raises ``STO-K054`` for another part by the policy role.
    """
    builds = find_builds(directory)
    put = [one for build in builds for one in _named(build, by_policy=by_policy)]
    listed = {digest for build in builds for digest in build.part.libraries}
    put += library_targets(listed)
    return Changes(tuple({one.name: one for one in put}.values()))


def _named(build: FoundBuild, *, by_policy: bool) -> Iterator[NewTarget]:
    """Yield a build's files under the names that the role which signs gives them."""
    if not by_policy:
        yield from build.files
        return
    part = msgspec.structs.replace(build.part, role="policy")
    if not part.flavor:
        raise UsageError("STO-K054", f"the policy role names no {part.part}")
    yield NewTarget.of(f"{part.target}.json", msgspec.json.encode(part, order="sorted"))
    for one in build.files:
        if one.name != f"{build.part.target}.json":
            file = one.name.removeprefix(f"flavor/{part.part}/")
            yield replace(one, name=f"policy/flavor-{part.part}.{file}")


def _build(directory: Path, record: Path) -> FoundBuild:
    name = record.relative_to(directory).as_posix()
    data = _small(record, name)
    part = read_target(data, PartFile, name)
    return FoundBuild(part, tuple(_files(directory, name, data, part)))


def _files(
    directory: Path, name: str, data: bytes, part: PartFile
) -> Iterator[NewTarget]:
    """Yield one part's files, checked against its record."""
    base = part.target
    if name != f"{base}.json":
        raise TrustError("STO-K050", f"{name} is the record of {base}")
    yield NewTarget.of(name, data)
    archive = base + _SUFFIXES.get(part.part, ".tar.xz")
    file = _expected(directory, archive, part.archive.sha256)
    if file.size != part.archive.size:
        raise TrustError("STO-K050", f"{name} states another size of its archive")
    yield file
    if part.tree:
        _check_archive(directory / archive, archive, part.tree)
        yield _expected(directory, f"{base}.tree", part.tree)
    if part.sbom:
        yield _expected(directory, f"{base}.sbom.json", part.sbom)
    if part.flavor:
        yield _expected(directory, f"flavor/{part.part}/manifest.yaml", part.flavor)


def _expected(directory: Path, name: str, digest: str) -> NewTarget:
    """Return file `name`, which must have `digest`."""
    path = directory / name
    # A link could point to another file when it is copied.
    if path.is_symlink() or not path.is_file():
        raise TrustError("STO-K050", f"{name} is missing beside its record")
    found, size = hash_file(path)
    if found != digest:
        raise TrustError(
            "STO-K050",
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
        raise TrustError("STO-K050", f"{name} cannot be read") from error


def _small(path: Path, name: str) -> bytes:
    try:
        return read_bounded(path, ceremony_bounds().metadata_bytes)
    except OSError as error:
        raise TrustError(
            "STO-K050", f"{name} cannot be read: {error.strerror}"
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
    found: list[str] = []
    for role in ("targets", "policy"):
        prefix = re.escape(part_target(part, platform, role))
        form = rf"{prefix}(\..+)?" if platform else rf"{prefix}.*"
        found += (name for name in names if re.fullmatch(form, name))
    if not found:
        raise UsageError(
            "STO-K054", f"the release has no part {part[:40]!r} {platform}"
        )
    return tuple(sorted(found))


BUILT_PATH: Final = "_internal/stoilo/executor/verifier/built.json"
"""Where a verifier's tree holds what it was built with."""

MAX_BUILT_BYTES: Final = 1024**2
XZ_MAGIC: Final = b"\xfd7zXZ\x00"


def read_tree(file: IO[bytes], tree: str) -> bytes:
    """Read an archive, compressed or not, to its end: it must hold exactly `tree`.

    Returns:
        What a verifier in it was built with; empty where the tree holds no such file.

    Raises:
        TrustError: the codes of `stoilo.flavors.archive` and `stoilo.flavors.tree`.
    """
    compressed = file.read(len(XZ_MAGIC)) == XZ_MAGIC
    file.seek(0)
    built = b""
    for member in read_archive(XzReader(file) if compressed else file, Digest(tree)):
        wanted = member.file.path == BUILT_PATH and member.file.size <= MAX_BUILT_BYTES
        for chunk in member.chunks:  # read even where nobody wants it: hashes end there
            built += chunk if wanted else b""
    return built


def check_launcher(launcher: PartFile, program: bytes, verifier: PartFile) -> None:
    """Check that a launcher (its bytes) starts `verifier` of the same platform.

    Raises ``STO-F006`` when it is no launcher, ``STO-F034`` when it starts another
    verifier or is another than its record says.
    """
    held = describe_launcher(program)
    own = (held.platform, held.version, held.serial)
    if own != (launcher.platform, launcher.version, launcher.serial):
        raise TrustError(
            "STO-F034",
            f"the launcher for {launcher.platform} is not that of its record",
        )
    ours = (verifier.archive.sha256, verifier.archive.size, verifier.tree)
    if (held.archive, held.archive_size, held.tree) != ours:
        raise TrustError(
            "STO-F034",
            f"the launcher for {launcher.platform} starts another verifier than the "
            "release's",
            hint="publish the verifier and the launcher of one `stoilo release build`",
        )


def check_built(
    built: Built,  # what its tree holds
    verifier: PartFile,  # its record
    *,
    roots: Collection[bytes],  # every root of the release
    origin: str,  # the project's name
    rehearsal: bool,  # whether the root is one of a staging project
    development: bool,  # whether it is one of development
) -> None:
    """Check that a verifier was built for this release.

    Raises:
        TrustError: STO-F034.
    """
    own = (built.platform, built.version, built.serial)
    if own != (verifier.platform, verifier.version, verifier.serial):
        raise _wrong(verifier, "is not that of its record")
    if built.root_bytes() not in roots or built.origin != origin:
        raise _wrong(verifier, "was built for another root or project")
    # A verifier of a rehearsal takes development marks too: it is built that way.
    lenient = development or rehearsal
    if built.development != lenient or built.rehearsal != rehearsal:
        raise _wrong(verifier, "was built for another kind of root")


def _wrong(verifier: PartFile, what: str) -> TrustError:
    return TrustError(
        "STO-F034",
        f"the verifier for {verifier.platform} {what}",
        hint="build it again: stoilo release build --root FILE",
    )
