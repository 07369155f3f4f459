"""`stoilo volunteer status | suspend | resume | update | self-check`: see and steer it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stoilo.cli.volunteer.attach import attachments_at, data_option
from stoilo.cli.volunteer.opt_in import describe_allowed
from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import StoiloError, UsageError, show_plainly

if TYPE_CHECKING:
    from stoilo.executor.verifier.inspection import SelfCheck
    from stoilo.executor.volunteer.status import Control, CopyStanding, VolunteerStatus


state_option = click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The --state of a volunteer that was started without `attach`.",
)


def _which(command: Callable[..., None]) -> Callable[..., None]:
    """Add what says which volunteers are meant; see `_places`."""
    url = click.argument("url", required=False)
    return url(data_option(state_option(command)))


class Shown(msgspec.Struct, frozen=True):
    """All volunteers, and what this computer's opt-in allows (an error's text if none)."""

    volunteers: tuple[VolunteerStatus, ...]
    allowed: str


@click.command(short_help="Show projects, tasks, credit and trouble.")
@_which
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(url: str | None, data: Path, state: Path | None, *, as_json: bool) -> None:
    """Show projects, tasks in progress, credit and trouble; changes nothing.

    Reads what a running volunteer writes down about once a second.
    """
    from stoilo.executor.volunteer.status import read_status  # noqa: PLC0415 - an extra

    found = []
    for project, place in _places(url, data, state):
        one = read_status(place)
        named = msgspec.structs.replace(one, project=one.project or project)
        found.append(named)
    shown = Shown(tuple(found), _allowed())
    click.echo(msgspec.json.encode(shown).decode() if as_json else _render(shown))


@click.command()
@_which
def suspend(url: str | None, data: Path, state: Path | None) -> None:
    """Let nothing run until `resume`; holds over restarts. A running one obeys in 1 s."""
    _steer(url, data, state, lambda c: msgspec.structs.replace(c, suspended=True))
    click.echo("suspended; next: stoilo volunteer resume")


@click.command()
@_which
def resume(url: str | None, data: Path, state: Path | None) -> None:
    """Let tasks run again."""
    _steer(url, data, state, lambda c: msgspec.structs.replace(c, suspended=False))
    click.echo("resumed")


@click.command()
@_which
def update(url: str | None, data: Path, state: Path | None) -> None:
    """Call the project now, whatever pause it asked for."""
    _steer(
        url, data, state, lambda c: msgspec.structs.replace(c, updates=c.updates + 1)
    )
    click.echo("a running volunteer calls its project now")


def _steer(
    url: str | None,
    data: Path,
    state: Path | None,
    change: Callable[[Control], Control],
) -> None:
    from stoilo.executor.volunteer.status import read_control, write_control  # noqa: PLC0415 - an extra

    for _, place in _places(url, data, state):
        place.mkdir(mode=0o700, exist_ok=True)
        write_control(place, change(read_control(place)))


def _places(url: str | None, data: Path, state: Path | None) -> list[tuple[str, Path]]:
    """Return projects that are meant with their directories; raises ``STO-X045``."""
    if state is not None:
        if url is not None:
            raise UsageError("STO-U003", "a URL and --state exclude each other")
        return [("", state / "project")]
    attachments = attachments_at(data)
    chosen = [attachments.find(url)] if url else attachments.every()
    return [(one.said.project, one.project_directory) for one in chosen]


def _allowed() -> str:
    from stoilo.executor.verifier.installation import (  # noqa: PLC0415 - POSIX
        default_files,
        load_opt_in,
    )

    try:
        return describe_allowed(load_opt_in(default_files()))
    except StoiloError as error:
        return f"nothing runs: {error}"


def _render(shown: Shown) -> str:
    parts = [_render_volunteer(one) for one in shown.volunteers]
    if not parts:
        parts = ["attached to no project; next: stoilo volunteer attach URL"]
    return "\n".join([*parts, show_plainly(f"this computer allows: {shown.allowed}")])


def _render_volunteer(one: VolunteerStatus) -> str:
    how = "suspended" if one.suspended else "running" if one.running else "not running"
    lines = [f"{one.project or 'not started yet'}  {how}, host {one.host_id or 'new'}"]
    if one.account:
        credit = f"{one.total_credit:,.2f} (this computer {one.host_credit:,.2f})"
        lines.append(f"  account {one.account}, credit {credit}")
    lines.append(f"  last answer {_when(one.last_contact)}{_next(one)}")
    if one.last_error:
        lines.append(f"  last trouble {_when(one.last_error_at)}: {one.last_error}")
    lines += [f"  {_render_copy(copy)}" for copy in one.copies]
    lines += [f"  project says: {text}" for text in one.messages[-3:]]
    return "\n".join(show_plainly(line) for line in lines)


def _render_copy(copy: CopyStanding) -> str:
    done = "" if copy.fraction_done is None else f" {copy.fraction_done:.0%}"
    phase = "running" if copy.running else copy.phase
    failed = f" {copy.code}" if copy.code else ""
    return (
        f"{copy.result}  {copy.app}  {phase}{done}{failed}, due {_when(copy.deadline)}"
    )


def _next(one: VolunteerStatus) -> str:
    left = one.next_call_at - time.time()
    return f", next call in {left:.0f} s" if one.running and left > 0 else ""


def _when(seconds: float) -> str:
    if not seconds:
        return "never"
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(max(0, min(seconds, 2**40))))


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
        click.echo(msgspec.json.encode(check).decode())
        return
    from stoilo.executor.verifier.inspection import render_check  # noqa: PLC0415 - an extra

    click.echo(render_check(check), nl=False)


def _compare(project: str, root: bytes, launcher: Path, ca: Path | None) -> SelfCheck:
    from stoilo.executor.verifier.inspection import OwnParts, check_self, prove_release  # noqa: PLC0415 - as above
    from stoilo.executor.verifier.trust import (  # noqa: PLC0415 - an extra
        installed_release,
        load_trust,
    )
    from stoilo.executor.volunteer.programs import fetch_release  # noqa: PLC0415 - as above
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
