"""A frozen part as a release ships it: tree, manifest, archive, bill of materials.

    OUTPUT/tree/…           the tree, with its MANIFEST
    OUTPUT/flavor/NAME/…    the files that a release names, by target name, and the file
                            of each described library
    OUTPUT/verifier/…       the same of a verifier
    OUTPUT/build/…          the log; after a failure also all intermediate files

The record beside them (`PartFile`: version, serial) is `stoilo.signer.part_building`'s.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import PolicyRefusal, UsageError
from stoilo.core.frozen_tree import (
    MANIFEST_NAME,
    Tree,
    platform_name,
    render_tree,
    tree_digest,
)
from stoilo.flavors.described import (
    check_frozen,
    check_versions,
    flavor_level,
    library_contents,
    library_files,
)
from stoilo.flavors.freeze import (
    PACKAGE,
    FreezePlan,
    FrozenPart,
    freeze_part,
    make_empty,
)
from stoilo.flavors.lock import (
    base_requirements,
    check_lock,
    load_lock,
    normal_name,
    parse_lock,
)
from stoilo.flavors.manifest import FlavorManifest, held_libraries
from stoilo.flavors.packing import XzWriter, describe_tree, hash_file, write_archive
from stoilo.flavors.sbom import describe_host_libraries, read_licences, render_sbom

RUNTIME_PROGRAM = "stoilo-runtime"
VERIFIER_PROGRAM = "stoilo-verifier"
# Most files and bytes of a verifier's tree: the launcher's bounds
VERIFIER_FILES, VERIFIER_BYTES = 4096, 256 << 20
_REFUSED = {
    "cloudpickle": "it exists to unpickle functions",
    "dill": "it exists to unpickle functions",
    "joblib": "it unpickles what it loads",
}


@dataclass(frozen=True, slots=True)
class BuiltPart:
    """What a build made."""

    part: str  # `verifier` or the flavor's name
    platform: str  # as `platform_name` says it
    python: str  # exact version of the interpreter
    level: str  # of a flavor; empty for the verifier
    tree: Digest  # the tree digest
    files: int  # number of files in the tree
    size: int  # bytes of the tree
    archive: Path  # the archive's file
    archive_digest: Digest  # SHA-256 of it
    archive_size: int  # bytes of it
    sbom: Digest  # SHA-256 of the bill of materials
    lock: Digest  # SHA-256 of the lock
    targets: Path  # directory of the files that a release names
    libraries: tuple[str, ...]  # digests of a flavor's, in the order of their names


def check_flavor(flavor: FlavorManifest) -> str:
    """Return the level of `flavor`, or refuse to build it.

    A library's own wheels may bring what no flavor may name: tasks never reach it there.

    Raises:
        PolicyRefusal: ``STO-F009`` it names a library that unpickles, ``STO-P062`` nothing
            lets its modules in.
    """
    named = {normal_name(one.partition("==")[0]) for one in flavor.requirements}
    named |= {module.partition(".")[0] for module in flavor.modules}
    for name, reason in _REFUSED.items():
        if name in named:
            raise PolicyRefusal(
                "STO-F009",
                f"no flavor may name {name}: {reason}",
                hint="leave it out; tasks that name the thesis's listing run on `torchvision`",
            )
    return flavor_level(flavor)


def build_flavor(
    flavor: FlavorManifest,  # what to freeze
    manifest: bytes,  # the bytes that it was parsed from
    output: Path,  # made when it is missing
    *,
    lock: bytes | None = None,  # its lock; default: the committed one
    python: Path | None = None,  # interpreter to freeze with
    # the source to freeze; only tests freeze another than ours
    package: Path = PACKAGE,
) -> BuiltPart:
    """Freeze `flavor` below the empty directory `output`.

    Raises:
        PolicyRefusal: as `check_flavor`; ``STO-P001`` about a library that is not what its
            file describes, or does not run frozen.
        UsageError: ``STO-F007``, ``STO-U003``.
        InternalError: as `freeze_part`.
    """
    level = check_flavor(flavor)
    data = load_lock(flavor.name, platform_name()) if lock is None else lock
    requirements = (*base_requirements("runtime"), *flavor.requirements)
    check_lock(parse_lock(data), requirements, flavor.python)
    libraries = held_libraries(flavor)
    check_versions(libraries, parse_lock(data))
    output = make_empty(output)
    plan = FreezePlan(
        part=flavor.name,
        program=RUNTIME_PROGRAM,
        entry="stoilo/flavors/runtime_entry.py",
        contents=library_contents(level, libraries),
        lock=data,
        python=flavor.python,
        package=package,
        libraries=libraries,
    )
    frozen = freeze_part(plan, output / "build", python)
    check_frozen(frozen.tree / RUNTIME_PROGRAM, level, libraries)
    targets = output / "flavor" / flavor.name
    built = _ship(plan, frozen, output, targets, level)
    for name, text in {"manifest.yaml": manifest, **library_files(libraries)}.items():
        (targets / name).write_bytes(text)
    return built


def build_verifier(
    built: bytes,
    output: Path,
    *,
    lock: bytes | None = None,
    python: Path | None = None,
) -> BuiltPart:
    """Freeze the verifier with the built file `built` below the empty `output`.

    Raises:
        UsageError: ``STO-F007``, ``STO-U003``, and ``STO-F014`` when the tree
            is past the launcher's bounds.
        InternalError: as `freeze_part`.
    """
    data = load_lock("verifier", platform_name()) if lock is None else lock
    parsed = parse_lock(data)
    check_lock(parsed, base_requirements("verifier"), parsed.python)
    output = make_empty(output)
    plan = FreezePlan(
        part="verifier",
        program=VERIFIER_PROGRAM,
        entry="stoilo/executor/verifier/entry.py",
        contents=("verifier",),
        lock=data,
        python=parsed.python,
        extra={"stoilo/executor/verifier/built.json": built},
    )
    frozen = freeze_part(plan, output / "build", python)
    return _ship(plan, frozen, output, output / "verifier", "")


def _ship(
    plan: FreezePlan, frozen: FrozenPart, output: Path, targets: Path, level: str
) -> BuiltPart:
    """Move the tree to its place and write what a release names."""
    platform = platform_name()
    tree = describe_tree(frozen.tree, plan.part, platform)
    if plan.part == "verifier":
        _check_launchable(tree)
    manifest = render_tree(tree)
    place = output / "tree"
    shutil.move(frozen.tree, place)
    (place / MANIFEST_NAME).write_bytes(manifest)
    targets.mkdir(parents=True)
    (targets / f"{platform}.tree").write_bytes(manifest)
    archive = _pack(place, tree, targets, platform)
    digest, size = hash_file(archive)
    sbom = render_sbom(
        plan.part,
        tree_digest(manifest),
        parse_lock(plan.lock),
        parse_lock(load_lock("tools", platform)),
        frozen.python,
        describe_host_libraries(tree, frozen.libraries),
        read_licences(frozen.site, frozen.wheels),
    )
    (targets / f"{platform}.sbom.json").write_bytes(sbom)
    (targets / f"{platform}.lock").write_bytes(plan.lock)  # for builders, not released
    _tidy(output / "build")
    return BuiltPart(
        part=plan.part,
        platform=platform,
        python=frozen.python,
        level=level,
        tree=tree_digest(manifest),
        files=len(tree.files),
        size=tree.size,
        archive=archive,
        archive_digest=digest,
        archive_size=size,
        sbom=content_digest(sbom),
        lock=content_digest(plan.lock),
        targets=targets,
        libraries=tuple(one.digest for one in plan.libraries),
    )


def _tidy(work: Path) -> None:
    """Leave the log alone of a build that succeeded."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "build.log":
            path.unlink()


def _pack(place: Path, tree: Tree, targets: Path, platform: str) -> Path:
    """Write the archive: the verifier's as the launcher reads it, others compressed."""
    if tree.part == "verifier":
        archive = targets / f"{platform}.tar"
        with archive.open("xb") as file:
            write_archive(place, tree, file)
        return archive
    archive = targets / f"{platform}.tar.xz"
    with archive.open("xb") as file:
        packed = XzWriter(file)
        write_archive(place, tree, packed)
        packed.close()
    return archive


def _check_launchable(tree: Tree) -> None:
    if len(tree.files) > VERIFIER_FILES or tree.size > VERIFIER_BYTES:
        raise UsageError(
            "STO-F014",
            f"the verifier has {len(tree.files):,} files and {tree.size:,} bytes",
            hint=f"a launcher takes {VERIFIER_FILES:,} files, {VERIFIER_BYTES:,} bytes",
        )
