"""The volunteer process: arguments, opt-in, signals, exit code.

It speaks BOINC's scheduler RPC, download and upload (`scheduler_rpc`, `transfer`), keeps what
must not be lost on the disk (`ledger`), works by `client` and leaves every decision about a
task to the verifier.

    python -m stoilo.executor.volunteer.main --project URL --key KEY --state DIR --root FILE

With ``--launcher FILE`` in place of ``--root`` the copies run as under a BOINC client, by the
project's own signed launcher, verifier and frozen flavors (`slot`). With
``--project-programs`` launcher and verifier are fetched from the project (`programs`) and
compared with the release under ``--root``, or taken as they come with
``--trust-project-programs``.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoilo.core.boinc.messages import MOST_TOPICS, TOPIC, AppVersion, Wishes
from stoilo.core.errors import StoiloError, UsageError, show_plainly
from stoilo.core.types import BOUNDS
from stoilo.executor.slot.executor import Executor, SlotExecutor
from stoilo.executor.slot.layout import Program
from stoilo.executor.verifier.installation import (
    LEVEL_ORDER,
    OptIn,
    ServerPreferences,
    default_files,
    load_opt_in,
    lower_by_server,
)
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import installed_release, load_trust
from stoilo.executor.verifier.workunit import HostState
from stoilo.executor.volunteer.attachments import Means, choose_means
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.installed import InstalledExecutor
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.optin_file import render_opt_in
from stoilo.executor.volunteer.programs import (
    Approval,
    ConsentedPrograms,
    Programs,
    ReleasedPrograms,
    fetch_release,
)
from stoilo.executor.volunteer.project_file import ProjectFile, specific_preferences
from stoilo.executor.volunteer.scheduler import Settings
from stoilo.executor.volunteer.transfer import Transfer


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stoilo-volunteer", allow_abbrev=False)
    parser.add_argument("--project", required=True, help="master URL, ends with /")
    parser.add_argument("--key", required=True, help="account key, or @FILE with it")
    parser.add_argument("--state", required=True, type=Path, help="own directory")
    parser.add_argument("--ca", type=Path, help="certificate of the project's CA")
    parser.add_argument("--slots", type=int, default=1, help="copies run at once")
    parser.add_argument("--exit-with-parent", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    if not _is_frozen():  # I4: a frozen executor has no such switches
        parser.add_argument("--root", type=Path, help="TUF root file")
        parser.add_argument("--launcher", type=Path, help="run copies under this")
        parser.add_argument("--project-programs", action="store_true")
        parser.add_argument("--trust-project-programs", action="store_true")
        parser.add_argument("--max-level", choices=list(LEVEL_ORDER))
        parser.add_argument("--opt-in", type=Path, help="one more opt-in file")
    return parser


def _is_frozen() -> bool:
    return bool(getattr(sys, "frozen", False))


def _read_key(text: str) -> str:
    if not text.startswith("@"):
        return text
    return _read(Path(text[1:]), BOUNDS.token_chars).decode("ascii", "replace").strip()


def _read(path: Path, most: int) -> bytes:
    """Return a file named on the command line, or raise ``STO-U004``."""
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise UsageError("STO-U004", f"{path.name} cannot be read") from error
    if len(data) > most:
        raise UsageError("STO-U004", f"{path.name} is larger than {most} bytes")
    return data


def choose_opt_in(
    state: Path, *, max_level: str | None = None, file: Path | None = None
) -> OptIn:
    """Return what this volunteer allows: what every opt-in file allows, else `pure`.

    `max_level`: typed by the volunteer; only lowers.
    `file`: one more opt-in file, which must exist.

    Raises:
        UsageError: STO-A060, a file is missing or cannot be trusted.
    """
    if file is not None and not file.exists():
        raise UsageError(
            "STO-A060",
            f"there is no opt-in file {file.name}",
            hint=f"stoilo volunteer opt-in set --file {file.name} --max-level pure",
        )
    own = load_opt_in(
        (*default_files(), *([file] if file else [])),
        server_writable=(state / "project", state / "executor", state / "slots"),
    )
    if max_level is None:
        return own
    return lower_by_server(own, ServerPreferences(max_level=max_level))


def wishes_of(opt_in: OptIn) -> Wishes:
    """Return the opt-in as what a project is asked not to send.

    Topics that no task can carry are left out; where none is left, none fits.
    """
    topics = sorted(filter(TOPIC.fullmatch, opt_in.topics))[:MOST_TOPICS]
    return Wishes(
        max_level=opt_in.max_level,
        require_review=opt_in.require_review,
        require_public_source=opt_in.require_public_source,
        topics=tuple(topics) or (("-",) if opt_in.topics else ()),
    )


def _watch_parent(stop: Callable[[], None]) -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        stop()

    threading.Thread(target=watch, name="parent", daemon=True).start()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What runs copies, and who hears of the project's programs."""

    executor: Executor
    project: ProjectFile
    programs: Programs | None = None


def _means_of(options: argparse.Namespace) -> Means:
    """Return by what copies shall run; raises ``STO-U003``."""
    return choose_means(
        root=options.root is not None,
        launcher=options.launcher is not None,
        project_programs=options.project_programs,
        trust_project_programs=options.trust_project_programs,
    )


def _make_parts(
    options: argparse.Namespace, opt_in: OptIn, ledger: Ledger, transfer: Transfer
) -> _Parts:
    """Return what runs the copies: the frozen chain, or this installation itself."""
    project = ProjectFile(ledger.directory)
    allowed = render_opt_in(opt_in)

    def wishes() -> str:
        return specific_preferences(project.memory.preferences)

    match _means_of(options):
        case Means.ROOT:
            directory = _own(options.state / "executor")
            root = _read(options.root, BOUNDS.metadata_bytes)
            host = HostState.under(opt_in)
            executor = InstalledExecutor(root, directory, host, clock=time.time)
            return _Parts(executor, project)
        case Means.LAUNCHER:
            program = Program.of(options.launcher)
            slots = SlotExecutor(program, options.state, allowed, wishes)
            return _Parts(slots, project)
        case Means.RELEASED | Means.TRUSTED:
            programs = Programs(
                ledger.directory,
                transfer,
                lambda: project.memory.code_sign_key,
                _approval(options),
            )
            slots = SlotExecutor(programs, options.state, allowed, wishes)
            return _Parts(slots, project, programs)


def _approval(options: argparse.Namespace) -> Approval:
    if options.root is None:
        return ConsentedPrograms()
    root = _read(options.root, BOUNDS.metadata_bytes)
    cache = _own(options.state / "release")

    def fetch() -> TrustedRelease:
        return load_trust(
            fetch_release(options.project, options.ca).files,
            root,
            int(time.time()),
            installed=installed_release(),
            cache=cache,
        )

    return ReleasedPrograms(fetch)


def _own(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _settings(options: argparse.Namespace, opt_in: OptIn) -> Settings:
    project: str = options.project
    means = _means_of(options)
    return Settings(
        project=project if project.endswith("/") else f"{project}/",
        key=_read_key(options.key),
        slots=options.slots,
        wishes=wishes_of(opt_in),
        own_program=means in {Means.ROOT, Means.LAUNCHER},
    )


def run_volunteer(
    arguments: Sequence[str],
    wrap: Callable[[Executor], Executor] = lambda executor: executor,
) -> None:
    """Run one volunteer until SIGTERM or SIGINT.

    Raises:
        StoiloError: whatever ends a volunteer for good.
    """
    options = _parser().parse_args(list(arguments))
    if not options.project.startswith(("http://", "https://")) or options.slots < 1:
        raise UsageError("STO-U003", "--project must be an http(s) URL, --slots >= 1")
    frozen = _is_frozen()
    opt_in = choose_opt_in(
        options.state,
        max_level=None if frozen else options.max_level,
        file=None if frozen else options.opt_in,
    )
    settings = _settings(options, opt_in)
    ledger = Ledger(options.state / "project", settings.project)
    transfer = Transfer(settings.project, ca=options.ca)
    parts = _make_parts(options, opt_in, ledger, transfer)
    volunteer = Volunteer(
        settings,
        ledger,
        transfer,
        wrap(parts.executor),
        project=parts.project,
        on_app_versions=parts.programs.learn if parts.programs else _ignore,
    )
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: volunteer.stop())
    if options.exit_with_parent:
        _watch_parent(volunteer.stop)
    try:
        volunteer.run()
    finally:
        volunteer.close()
        for sign in (signal.SIGTERM, signal.SIGINT):  # our exit code is settled
            signal.signal(sign, signal.SIG_IGN)


def _ignore(versions: tuple[AppVersion, ...]) -> None:
    """Take no programs: copies run by what is here."""


def main(
    arguments: Sequence[str] | None = None,
    wrap: Callable[[Executor], Executor] = lambda executor: executor,
) -> int:
    """Run the process; returns the exit code of design §7."""
    given = sys.argv[1:] if arguments is None else arguments
    level = logging.INFO if "--verbose" in given else logging.WARNING
    logging.basicConfig(
        level=level, stream=sys.stderr, format="volunteer: %(levelname)s %(message)s"
    )
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        run_volunteer(given, wrap)
    except StoiloError as error:
        sys.stderr.write(f"volunteer: {show_plainly(str(error))}\n")
        return error.exit_code
    return 0
