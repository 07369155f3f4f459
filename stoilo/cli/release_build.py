"""`stoilo release build`: verifier, launcher and flavors for one release, in one directory."""

from __future__ import annotations

import base64
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.cli.policy import read_source
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.flavors.build import BuiltPart

__all__ = ["build", "build_parts", "built_file"]

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option(
    "--output", required=True, type=_FOLDER, help="A directory that is new or empty."
)
@click.option(
    "--root", required=True, type=_FILE, help="Root metadata that the verifier trusts."
)
@click.option(
    "--origin", required=True, help="The project's origin, as the log has it."
)
@click.option(
    "--serial",
    required=True,
    type=click.IntRange(1),
    help="Higher than every published serial of these parts.",
)
@click.option("--version", "version", default="", help="For people. Default: serial.")
@click.option("--commit", default="", help="Commit of the source, for the built file.")
@click.option(
    "--flavor", "flavors", multiple=True, help="Also a flavor; may be given again."
)
@click.option("--floor", "floors", multiple=True, metavar="PART=SERIAL")
@click.option("--python", type=_FILE, help="Interpreter to freeze with.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def build(
    output: Path,
    root: Path,
    *,
    origin: str,
    serial: int,
    version: str,
    commit: str,
    flavors: tuple[str, ...],
    floors: tuple[str, ...],
    python: Path | None,
    as_json: bool,
) -> None:
    """Freeze the verifier for one root, build its launcher, and flavors if asked for.

    DIR then holds verifier/, launcher/ and flavor/ under the names that a release gives
    them. Build it on two machines, compare, attest, then hand DIR to `stoilo release
    request` or `init`. Whether the root is one of development or of a rehearsal is read
    from its mark: only a verifier built for such a root accepts one.

    Example: stoilo release build --output build --root root.json --origin lab --serial 1
    """
    version = version or str(serial)
    facts = built_file(root, origin, serial, version, commit, _floors(floors))
    made = build_parts(output, facts, flavors, version, serial, python=python)
    _show(made, output, as_json=as_json)


def build_parts(
    output: Path,
    facts: bytes,
    flavors: tuple[str, ...],
    version: str,
    serial: int,
    *,
    python: Path | None = None,
) -> list[BuiltPart]:
    """Build verifier, launcher and `flavors` into `output`, new or empty.

    As many parts are built at once as this process has processors.

    Args:
        output: gets the files under the names that a release gives them.
        facts: the verifier's built file, of `built_file`.
        flavors: names of flavors.
        version: of every part, for people.
        serial: of every part.
        python: interpreter to freeze with.
    """
    from stoilo.cli.flavor_build import find_manifest  # noqa: PLC0415 - loads the levels
    from stoilo.flavors.build import build_flavor, build_verifier  # noqa: PLC0415
    from stoilo.flavors.freeze import make_empty  # noqa: PLC0415 - as above

    output = make_empty(output)
    found = [find_manifest(name) for name in flavors]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        parts = output / "parts"
        waiting = [
            workers.submit(build_verifier, facts, parts / "verifier", python=python)
        ]
        waiting += [
            workers.submit(
                build_flavor, flavor, data, parts / flavor.name, python=python
            )
            for flavor, data in found
        ]
        made = [one.result() for one in waiting]
    _record(made[0], None, version, serial)
    for part in made[1:]:
        _record(part, part.part, version, serial)
    _launcher(made[0], output, version, serial)
    for part in made:
        _gather(part, output)
    return made


def _floors(words: tuple[str, ...]) -> dict[str, int]:
    """Return part → lowest serial, or raise ``STO-U003``."""
    found = {}
    for word in words:
        part, _, serial = word.partition("=")
        if not part or not serial.isdecimal():
            raise UsageError(
                "STO-U003", f"--floor takes PART=SERIAL, not {word[:60]!r}"
            )
        found[part] = int(serial)
    return found


def built_file(
    root: Path,
    origin: str,
    serial: int,
    version: str,
    commit: str,
    floors: dict[str, int],
) -> bytes:
    """Return the verifier's built file.

    Raises:
        TrustError: ``STO-K013``, the root cannot be read; ``STO-F035``, a value is
            malformed.
    """
    from stoilo.executor.verifier.installation import (  # noqa: PLC0415 - an extra
        Built,
        BuiltFloors,
        parse_built,
        render_built,
    )
    from stoilo.executor.verifier.release.trust import (  # noqa: PLC0415 - an extra
        is_development_root,
        is_rehearsal_root,
    )
    from stoilo.flavors.tree import platform_name  # noqa: PLC0415 - used here only

    data = read_source(str(root))
    rehearsal, development = is_rehearsal_root(data), is_development_root(data)
    facts = render_built(
        Built(
            format="stoilo-built/1",
            part="verifier",
            platform=platform_name(),
            version=version,
            serial=serial,
            commit=commit,
            root=base64.b64encode(data).decode("ascii"),
            origin=origin,
            rehearsal=rehearsal,
            development=development or rehearsal,
            floors=BuiltFloors(serials=floors),
        )
    )
    parse_built(facts)
    return facts


def _record(part: BuiltPart, flavor: str | None, version: str, serial: int) -> None:
    """Write a part's record beside its archive."""
    from stoilo.flavors.manifest import find_flavor  # noqa: PLC0415 - used here only
    from stoilo.signer.partrecords import part_record, render_part  # noqa: PLC0415

    manifest = find_flavor(flavor) if flavor else None
    record = part_record(part, manifest, version, serial)
    (part.targets / f"{part.platform}.json").write_bytes(render_part(record))


def _launcher(verifier: BuiltPart, output: Path, version: str, serial: int) -> None:
    """Build the launcher that starts exactly this verifier."""
    from stoilo.flavors.launcher_build import LauncherHeld, build_launcher  # noqa: PLC0415
    from stoilo.signer.partrecords import launcher_record, render_part  # noqa: PLC0415

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


def _show(made: list[BuiltPart], output: Path, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "part": part.part,
                "tree": part.tree,
                "archive": part.archive_digest,
                "size": part.archive_size,
            }
            for part in made
        ]
        click.echo(json.dumps({"output": str(output), "parts": rows}))
        return
    for part in made:
        click.echo(f"{part.part:<10} tree {part.tree}  {part.archive_size:,} bytes")
    click.echo(f"Next: build again elsewhere and compare, then attest: {output}")
