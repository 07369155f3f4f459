"""A release's parts, built into one directory, each with the record that describes it."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.frozen_tree import platform_name
from stoilo.executor.verifier.targets import ArchiveFile, Floors, PartFile
from stoilo.executor.verifier.trust import (
    DEVELOPMENT_MARK,
    REHEARSAL_MARK,
    Built,
    parse_built,
    render_built,
)
from stoilo.flavors.build import BuiltPart, build_flavor, build_verifier
from stoilo.flavors.freeze import make_empty
from stoilo.flavors.launcher_build import LauncherHeld, build_launcher
from stoilo.flavors.manifest import FlavorManifest
from stoilo.signer.release_pack import marks_of

FORMAT: Final = "stoilo-part/1"


def part_record(
    built: BuiltPart, flavor: FlavorManifest | None, version: str, serial: int
) -> PartFile:
    """Return the record of a verifier, or of `flavor`.

    Args:
        built: what the build made.
        flavor: None for the verifier.
        version: for people.
        serial: higher than every published one of this part.
    """
    return PartFile(
        format=FORMAT,
        part=built.part,
        platform=built.platform,
        version=version,
        serial=serial,
        archive=ArchiveFile(
            built.archive.name, built.archive_size, built.archive_digest
        ),
        tree=built.tree,
        python=".".join(built.python.split(".")[:2]),
        flavor=flavor.digest if flavor else "",
        alias=flavor.alias if flavor else "",
        level=built.level,
        sbom=built.sbom,
        lock=built.lock,
        libraries=built.libraries,
    )


def launcher_record(held: LauncherHeld, program: bytes) -> PartFile:
    """Return the record of a launcher: the archive is the program itself."""
    return PartFile(
        format=FORMAT,
        part="launcher",
        platform=held.platform,
        version=held.version,
        serial=held.serial,
        archive=ArchiveFile(held.platform, len(program), content_digest(program)),
    )


def render_part(part: PartFile) -> bytes:
    """Return the record's bytes; equal for equal contents."""
    return (
        msgspec.json.format(msgspec.json.encode(part, order="sorted"), indent=1) + b"\n"
    )


def build_parts(
    output: Path,  # gets the files under the names that a release gives them
    facts: bytes,  # the verifier's built file, of `built_file`
    flavors: Sequence[tuple[FlavorManifest, bytes]],  # manifests, and the bytes of each
    version: str,  # of every part, for people
    serial: int,  # of every part
    *,
    python: Path | None = None,  # interpreter to freeze with
) -> list[BuiltPart]:
    """Build verifier, launcher and `flavors` into `output`, new or empty.

    As many parts are built at once as this process has processors.
    """
    output = make_empty(output)
    # Each build is a process of its own; the threads only wait.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        parts = output / "parts"
        waiting = [
            workers.submit(build_verifier, facts, parts / "verifier", python=python)
        ]
        waiting += [
            workers.submit(
                build_flavor, flavor, data, parts / flavor.name, python=python
            )
            for flavor, data in flavors
        ]
        made = [one.result() for one in waiting]
    for part, flavor in zip(made, (None, *(one for one, _ in flavors)), strict=True):
        record = part_record(part, flavor, version, serial)
        (part.targets / f"{part.platform}.json").write_bytes(render_part(record))
    _launcher(made[0], output, version, serial)
    for part in made:
        _gather(part, output)
    return made


def built_file(
    root: bytes,
    origin: str,
    serial: int,
    version: str,
    commit: str,
    floors: dict[str, int],
) -> bytes:
    """Return the verifier's built file.

    Raises ``STO-K013``, the root cannot be read; ``STO-F035``, a value is malformed.
    """
    marks = marks_of(root)
    rehearsal, development = REHEARSAL_MARK in marks, DEVELOPMENT_MARK in marks
    facts = render_built(
        Built(
            format="stoilo-built/1",
            part="verifier",
            platform=platform_name(),
            version=version,
            serial=serial,
            commit=commit,
            root=base64.b64encode(root).decode("ascii"),
            origin=origin,
            rehearsal=rehearsal,
            development=development or rehearsal,
            floors=Floors(serials=floors),
        )
    )
    parse_built(facts)
    return facts


def _launcher(verifier: BuiltPart, output: Path, version: str, serial: int) -> None:
    held = LauncherHeld(
        platform=verifier.platform,
        version=version,
        serial=serial,
        archive=verifier.archive_digest,
        archive_size=verifier.archive_size,
        tree=verifier.tree,
    )
    folder = output / "launcher"
    folder.mkdir()
    program = folder / verifier.platform
    build_launcher(held, program)
    record = launcher_record(held, program.read_bytes())
    (folder / f"{verifier.platform}.json").write_bytes(render_part(record))


def _gather(part: BuiltPart, output: Path) -> None:
    """Move what a release names from the part's own directory to the common one."""
    own = output / "parts" / part.part
    target = output / part.targets.relative_to(own)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(part.targets, target)
