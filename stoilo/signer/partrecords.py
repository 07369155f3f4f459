"""The record of a frozen part that a release carries beside its archive."""

from __future__ import annotations

from typing import Final

import msgspec

from stoilo.core.digests import content_digest
from stoilo.executor.verifier.release.targets import ArchiveFile, PartFile
from stoilo.flavors.build import BuiltPart
from stoilo.flavors.launcher_build import LauncherHeld
from stoilo.flavors.manifest import FlavorManifest

__all__ = ["launcher_record", "part_record", "render_part"]

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
