"""`stoilo volunteer status | suspend | self-check`: see and steer it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from stoilo.cli.output import FILE, JSON, read_file, say
from stoilo.cli.volunteer.group import data_option
from stoilo.cli.volunteer.opt_in import describe_allowed
from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import StoiloError, UsageError, show_plainly
from stoilo.executor.verifier.inspection import (
    OwnParts,
    SelfCheck,
    check_self,
    prove_release,
    render_check,
)
from stoilo.executor.verifier.installation import default_files, load_opt_in
from stoilo.executor.verifier.trust import installed_release, load_trust
from stoilo.executor.volunteer.attachments import Attachments
from stoilo.executor.volunteer.history import PastRun, read_history
from stoilo.executor.volunteer.ledger import NO_HOST, HostRecord, load_record
from stoilo.executor.volunteer.programs import fetch_release
from stoilo.executor.volunteer.status import (
    Control,
    CopyStanding,
    VolunteerStatus,
    read_control,
    read_status,
    write_control,
)
from stoilo.flavors.launcher_build import MAX_LAUNCHER_BYTES, describe_launcher

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
@click.option(
    "--update", is_flag=True, help="Call the project now, whatever pause it asked for."
)
@JSON
def status(
    url: str | None, data: Path, state: Path | None, *, update: bool, as_json: bool
) -> None:
    """Show projects, tasks in progress, credit and trouble.

    Reads what a running volunteer writes down about once a second, and changes nothing.
    """
    if update:
        _steer(
            url,
            data,
            state,
            lambda c: msgspec.structs.replace(c, updates=c.updates + 1),
        )
    found = []
    for project, place in _places(url, data, state):
        one = read_status(place)
        named = msgspec.structs.replace(one, project=one.project or project)
        found.append(named)
    shown = Shown(tuple(found), _allowed())
    say(shown, _render(shown), as_json=as_json)


class ShownRun(msgspec.Struct, frozen=True):
    """One row of the history: what the volunteer noted, its project and its log's page."""

    project: str
    page: str  # address of the task's page in the project's log
    run: PastRun


@click.command(short_help="Show what ran here lately, with links to the log.")
@_which
@click.option("--most", default=20, show_default=True, help="Rows, the newest ones.")
@JSON
def history(
    url: str | None, data: Path, state: Path | None, most: int, *, as_json: bool
) -> None:
    """Show what ran here lately: when, function, level, how long, how it ended.

    Reads what the volunteer noted on this computer (the newest thousand), and asks nobody.
    The page in the project's log says what was checked before it ran.
    """
    found = [
        ShownRun(project, _page_of(project, run), run)
        for project, place in _places(url, data, state)
        for run in read_history(place)
    ]
    found.sort(key=lambda one: one.run.at, reverse=True)
    shown = found[: max(0, most)]
    text = "\n".join(map(_render_run, shown)) or "nothing ran here yet"
    say(shown, text, as_json=as_json)


def _page_of(project: str, run: PastRun) -> str:
    task, _, number = run.workunit.rpartition("_")
    return f"{project}audit/task/{task}" if number.isdecimal() and project else ""


def _render_run(one: ShownRun) -> str:
    run = one.run
    ended = f"{run.outcome} {run.code}".strip()
    what = f"{run.function or run.workunit}  {run.level or run.app}"
    line = f"{_when(run.at)}  {what}  {run.elapsed_s:.1f} s  {ended}\n  {one.page}"
    return show_plainly(line.rstrip())


@click.command(short_help="Let nothing run until --undo.")
@_which
@click.option("--undo", is_flag=True, help="Let tasks run again.")
@JSON
def suspend(
    url: str | None, data: Path, state: Path | None, *, undo: bool, as_json: bool
) -> None:
    """Let nothing run until --undo; holds over restarts. A running one obeys in 1 s."""
    _steer(url, data, state, lambda c: msgspec.structs.replace(c, suspended=not undo))
    again = "suspended; next: stoilo volunteer suspend --undo"
    say({"suspended": not undo}, "resumed" if undo else again, as_json=as_json)


def _steer(
    url: str | None,
    data: Path,
    state: Path | None,
    change: Callable[[Control], Control],
) -> None:
    for _, place in _places(url, data, state):
        place.mkdir(mode=0o700, exist_ok=True)
        write_control(place, change(read_control(place)))


def _places(url: str | None, data: Path, state: Path | None) -> list[tuple[str, Path]]:
    """Return projects that are meant with their directories; raises ``STO-X045``."""
    if state is not None:
        if url is not None:
            raise UsageError("STO-U003", "a URL and --state exclude each other")
        place = state / "project"
        return [(load_record(place / "host.json", HostRecord, NO_HOST).project, place)]
    attachments = Attachments(data)
    chosen = [attachments.find(url)] if url else attachments.every()
    return [(one.said.project, one.project_directory) for one in chosen]


def _allowed() -> str:

    try:
        return describe_allowed(load_opt_in(default_files()))
    except StoiloError as error:
        return f"nothing runs: {error}"


def _render(shown: Shown) -> str:
    parts = [_render_volunteer(one) for one in shown.volunteers]
    if not parts:
        parts = ["attached to no project; next: stoilo volunteer attach URL"]
    return "\n".join([*parts, f"this computer allows: {shown.allowed}"])


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
    return "\n".join(lines)


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


@click.command("self-check")
@click.option("--project", required=True, help="The project's master URL.")
@click.option(
    "--root", required=True, type=FILE, help="The root that you trust, a file."
)
@click.option(
    "--launcher",
    required=True,
    type=FILE,
    help="The launcher as your client fetched it (in BOINC's projects/ directory).",
)
@click.option("--ca", type=FILE, help="CA certificate of the project's server.")
@JSON
def self_check(
    project: str, root: Path, launcher: Path, ca: Path | None, *, as_json: bool
) -> None:
    """Compare the launcher on this computer with what the project published.

    Fetches the project's release, verifies it up to your root, and looks for the launcher
    and the verifier that it holds, in the release and in the project's log. Exit code 0: the
    same; 4: another program, or a release that the log does not know; 7: not reachable.
    """
    check = _compare(project, read_file(root), launcher, ca)
    say(check, render_check(check).rstrip("\n"), as_json=as_json)


def _compare(project: str, root: bytes, launcher: Path, ca: Path | None) -> SelfCheck:
    program = read_file(launcher, MAX_LAUNCHER_BYTES)
    held = describe_launcher(program)
    digest, tree = content_digest(program), Digest(held.tree)
    own = OwnParts(held.platform, digest, tree, held.serial)
    fetched = fetch_release(project, ca)
    now = int(time.time())
    trust = load_trust(fetched.files, root, now, installed=installed_release())
    if not fetched.proof and trust.development:
        return check_self(trust, own, None)
    return check_self(trust, own, prove_release(fetched.record, fetched.proof, trust))
