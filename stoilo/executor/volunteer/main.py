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
from pathlib import Path

from stoilo.core.boinc.messages import MOST_TOPICS, TOPIC, AppVersion, Wishes
from stoilo.core.boinc.xml import XmlBounds, parse_xml, render_xml
from stoilo.core.errors import StoiloError, TrustError, UsageError, show_plainly
from stoilo.core.limits import BOUNDS
from stoilo.executor.slot.executor import Executor, SlotExecutor
from stoilo.executor.slot.layout import Program
from stoilo.executor.verifier.installation import installed_release, is_frozen
from stoilo.executor.verifier.optin import (
    LEVEL_ORDER,
    OptIn,
    ServerPreferences,
    default_files,
    load_opt_in,
    lower_by_server,
)
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.executor.verifier.trust import load_trust
from stoilo.executor.verifier.workunit import HostState
from stoilo.executor.volunteer.attachments import Means, choose_means
from stoilo.executor.volunteer.client import Volunteer
from stoilo.executor.volunteer.installed import InstalledExecutor
from stoilo.executor.volunteer.ledger import MAX_MEMORY_BYTES, Ledger
from stoilo.executor.volunteer.optin_file import render_opt_in
from stoilo.executor.volunteer.programs import (
    Approve,
    Programs,
    ReleasedPrograms,
    fetch_release,
)
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
    if not is_frozen():  # I4: a frozen executor has no such switches
        parser.add_argument("--root", type=Path, help="TUF root file")
        parser.add_argument("--launcher", type=Path, help="run copies under this")
        parser.add_argument("--project-programs", action="store_true")
        parser.add_argument("--trust-project-programs", action="store_true")
        parser.add_argument("--max-level", choices=list(LEVEL_ORDER))
        parser.add_argument("--opt-in", type=Path, help="one more opt-in file")
    return parser


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
            hint=f"stoilo volunteer opt-in --file {file.name} --max-level pure",
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


def specific_preferences(preferences: str) -> str:
    """Return what of the project's preferences its programs get; hostile text."""
    bounds = XmlBounds(document_bytes=MAX_MEMORY_BYTES)
    try:
        root = parse_xml(f"<all>{preferences}</all>".encode(), bounds)
    except TrustError:
        return ""
    found = root.find("project_specific")
    return "".join(map(render_xml, found.children)) if found is not None else ""


def _watch_parent(stop: Callable[[], None]) -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        stop()

    threading.Thread(target=watch, name="parent", daemon=True).start()


Learn = Callable[[tuple[AppVersion, ...]], None]
"""Hears of the programs that the project sends."""


def _make_executor(
    options: argparse.Namespace,
    means: Means,
    opt_in: OptIn,
    ledger: Ledger,
    transfer: Transfer,
) -> tuple[Executor, Learn]:
    """Return what runs the copies: the frozen chain, or this installation itself."""
    if means is Means.ROOT:
        directory = _own(options.state / "executor")
        root = _read(options.root, BOUNDS.metadata_bytes)
        host = HostState.under(opt_in)
        return InstalledExecutor(root, directory, host, clock=time.time), _ignore

    def wishes() -> str:
        return specific_preferences(ledger.memory.preferences)

    allowed = render_opt_in(opt_in)
    if means is Means.LAUNCHER:
        program = Program.of(options.launcher)
        slots = SlotExecutor(lambda _: program, options.state, allowed, wishes)
        return slots, _ignore
    programs = Programs(
        ledger.directory,
        transfer,
        lambda: ledger.memory.code_sign_key,
        _approval(options),
    )
    slots = SlotExecutor(programs.ready, options.state, allowed, wishes)
    return slots, programs.learn


def _ignore(versions: tuple[AppVersion, ...]) -> None:
    """Take no programs: copies run by what is here."""


def _approval(options: argparse.Namespace) -> Approve | None:
    if options.root is None:
        return None
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

    return ReleasedPrograms(fetch).check


def _own(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _run(options: argparse.Namespace, wrap: Callable[[Executor], Executor]) -> None:
    """Run one volunteer until SIGTERM or SIGINT.

    Raises:
        StoiloError: whatever ends a volunteer for good.
    """
    if not options.project.startswith(("http://", "https://")) or options.slots < 1:
        raise UsageError("STO-U003", "--project must be an http(s) URL, --slots >= 1")
    means = choose_means(
        root=options.root is not None,
        launcher=options.launcher is not None,
        project_programs=options.project_programs,
        trust_project_programs=options.trust_project_programs,
    )
    opt_in = choose_opt_in(
        options.state, max_level=options.max_level, file=options.opt_in
    )
    settings = Settings(
        project=f"{options.project.removesuffix('/')}/",
        key=_read_key(options.key),
        slots=options.slots,
        wishes=wishes_of(opt_in),
        own_program=means in {Means.ROOT, Means.LAUNCHER},
    )
    ledger = Ledger(options.state / "project", settings.project)
    transfer = Transfer(settings.project, ca=options.ca)
    executor, learn = _make_executor(options, means, opt_in, ledger, transfer)
    volunteer = Volunteer(
        settings,
        ledger,
        transfer,
        wrap(executor),
        on_app_versions=learn,
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


def main(
    arguments: Sequence[str] | None = None,
    wrap: Callable[[Executor], Executor] = lambda executor: executor,
) -> int:
    """Run the process; returns the exit code of design §7."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        stream=sys.stderr,
        format="volunteer: %(levelname)s %(message)s",
    )
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        _run(options, wrap)
    except StoiloError as error:
        sys.stderr.write(f"volunteer: {show_plainly(str(error))}\n")
        return error.exit_code
    return 0
