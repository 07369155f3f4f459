"""`stoilo volunteer self-check`: is the program here the one that everybody was shown?"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.executor.verifier.inspection import SelfCheck


_FILE = click.Path(path_type=Path, dir_okay=False)
_MAX_ROOT_BYTES = 512 * 1024


@click.command("self-check")
@click.option("--project", required=True, help="The project's master URL.")
@click.option(
    "--root", required=True, type=_FILE, help="The root that you trust, a file."
)
@click.option(
    "--launcher",
    required=True,
    type=_FILE,
    help="The launcher as your client fetched it (in BOINC's projects/ directory).",
)
@click.option("--ca", type=_FILE, help="CA certificate of the project's server.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def self_check(
    project: str, root: Path, launcher: Path, ca: Path | None, *, as_json: bool
) -> None:
    """Compare the launcher on this computer with what the project published.

    Fetches the project's release, verifies it up to your root, and looks for the launcher
    and the verifier that it holds, in the release and in the project's log. Exit code 0: the
    same; 4: another program, or a release that the log does not know; 7: not reachable.
    """
    check = _compare(project, _read(root), launcher, ca)
    if as_json:
        click.echo(json.dumps(_document(check)))
        return
    from stoilo.executor.verifier.inspection import render_check  # noqa: PLC0415 - an extra

    click.echo(render_check(check), nl=False)


def _compare(project: str, root: bytes, launcher: Path, ca: Path | None) -> SelfCheck:
    """Return what held."""
    from stoilo.executor.verifier.inspection import OwnParts, check_self, prove_release  # noqa: PLC0415 - as above
    from stoilo.executor.verifier.installation import installed_release  # noqa: PLC0415 - an extra
    from stoilo.executor.verifier.release.trust import load_trust  # noqa: PLC0415 - as above
    from stoilo.executor.volunteer.release_fetch import fetch_release  # noqa: PLC0415 - as above
    from stoilo.flavors.launcher_build import MAX_LAUNCHER_BYTES, describe_launcher  # noqa: PLC0415 - as above

    program = _read(launcher, MAX_LAUNCHER_BYTES)
    held = describe_launcher(program)
    digest, tree = content_digest(program), Digest(held.tree)
    own = OwnParts(held.platform, digest, tree, held.serial)
    fetched = fetch_release(project, ca)
    now = int(time.time())
    trust = load_trust(fetched.files, root, now, installed=installed_release())
    if not fetched.proof and trust.development:
        return check_self(trust, own, None)
    return check_self(trust, own, prove_release(fetched.record, fetched.proof, trust))


def _read(path: Path, most: int = _MAX_ROOT_BYTES) -> bytes:
    """Return a file named on the command line, cut at its bound; ``STO-U004``."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise UsageError("STO-U004", f"{path.name} cannot be read") from error


def _document(check: SelfCheck) -> dict[str, object]:
    """Return the machine's form."""
    return {
        "origin": check.origin,
        "development": check.development,
        "parts": [
            {
                "part": one.part,
                "version": one.version,
                "serial": one.serial,
                "digest": one.digest,
            }
            for one in check.findings
        ],
        "log": (
            None
            if check.entry is None
            else {
                "entry": check.entry,
                "size": check.size,
                "witnessed": check.witnessed,
            }
        ),
    }
