"""One more frozen flavor, or another one of the same name, in a development root."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from stoilo.cli.flavor.freezing import find_manifest
from stoilo.flavors.build import build_flavor
from stoilo.flavors.freeze import PACKAGE
from stoilo.signer.development.changes import publish_programs
from stoilo.signer.part_building import part_record, render_part

__all__ = ["publish_flavor"]

_SERIAL = 2
"""The one after `stoilo boinc programs`, which a project has had before."""


def publish_flavor(data: Path, name: str, package: Path = PACKAGE) -> None:
    """Freeze a flavor for the project in `data`, which does not run meanwhile.

    Args:
        data: directory of a project that has programs, of `freeze_project`.
        name: the flavor's; the project's own of that name is replaced.
        package: the source to freeze.
    """
    flavor, manifest = find_manifest(name)
    with tempfile.TemporaryDirectory(prefix="flavor-") as folder:
        output = Path(folder) / "part"
        built = build_flavor(flavor, manifest, output, package=package)
        record = render_part(part_record(built, flavor, "test", _SERIAL))
        (built.targets / f"{built.platform}.json").write_bytes(record)
        publish_programs(data / "keys", output, int(time.time()))
