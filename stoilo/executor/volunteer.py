"""The volunteer process: arguments, opt-in, signals, exit code.

It speaks BOINC's scheduler RPC, download and upload (`wire`, `transfer`), keeps what must
not be lost on the disk (`ledger`), works by `host` and leaves all judgement about a task
to the executor (`execute`).

    python -m stoilo.executor.volunteer --project URL --key KEY --state DIR --root FILE

With ``--launcher FILE`` in place of ``--root`` the copies run as under a BOINC client, by the
project's own signed launcher, verifier and frozen flavors (`slotexecutor`).
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

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.executor.execute import Executor, VerifiedExecutor
from stoilo.executor.host import Volunteer
from stoilo.executor.ledger import Ledger
from stoilo.executor.messages import MOST_TOPICS, TOPIC, Wishes
from stoilo.executor.optin import (
    LEVEL_ORDER,
    OptIn,
    ServerPreferences,
    default_files,
    load_opt_in,
    lower_by_server,
)
from stoilo.executor.pace import Settings
from stoilo.executor.slotexecutor import Program, SlotExecutor
from stoilo.executor.transfer import Transfer
from stoilo.executor.verifier import HostState

__all__ = ["choose_opt_in", "main", "run_volunteer", "wishes_of"]


def _parser() -> argparse.ArgumentParser:
    """Return the command line of the process."""
    parser = argparse.ArgumentParser(prog="stoilo-volunteer", allow_abbrev=False)
    parser.add_argument("--project", required=True, help="master URL, ends with /")
    parser.add_argument("--key", required=True, help="account key, or @FILE with it")
    parser.add_argument("--state", required=True, type=Path, help="own directory")
    parser.add_argument("--ca", type=Path, help="certificate of the project's CA")
    parser.add_argument("--slots", type=int, default=1, help="copies run at once")
    parser.add_argument("--exit-with-parent", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    if not _is_frozen():  # I4: a frozen executor has no such switches
        trusted = parser.add_mutually_exclusive_group(required=True)
        trusted.add_argument("--root", type=Path, help="TUF root file")
        trusted.add_argument("--launcher", type=Path, help="run copies under this")
        parser.add_argument("--max-level", choices=list(LEVEL_ORDER))
        parser.add_argument("--opt-in", type=Path, help="one more opt-in file")
    return parser


def _is_frozen() -> bool:
    """Say whether this is a frozen (released) executor."""
    return bool(getattr(sys, "frozen", False))


def _read_key(text: str) -> str:
    """Return the account key, from a file when written as ``@FILE``."""
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

    Args:
        state: the volunteer's directory; what servers write lies in it.
        max_level: typed by the volunteer; only lowers.
        file: one more opt-in file, which must exist.

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


def _host_state(opt_in: OptIn) -> HostState:
    """Return the opt-in in the verifier's form."""
    return HostState(
        max_level=opt_in.max_level,
        require_review=opt_in.require_review,
        require_public_source=opt_in.require_public_source,
        topics=opt_in.topics,
        limits=opt_in.limits,
    )


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
    """Stop when the process that started us is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        stop()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _make_executor(options: argparse.Namespace, opt_in: OptIn) -> Executor:
    """Return what runs the copies: the frozen chain, or this installation itself."""
    if options.launcher is not None:
        program = Program.of(options.launcher)
        return SlotExecutor(program, options.state, opt_in)
    trust_directory = options.state / "executor"
    trust_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return VerifiedExecutor(
        _read(options.root, BOUNDS.metadata_bytes),
        trust_directory,
        _host_state(opt_in),
        clock=time.time,
    )


def run_volunteer(
    arguments: Sequence[str],
    wrap: Callable[[Executor], Executor] = lambda executor: executor,
) -> None:
    """Run one volunteer until SIGTERM or SIGINT.

    Args:
        arguments: of the command line.
        wrap: for tests and the demo: puts something around the real executor.

    Raises:
        StoiloError: whatever ends a volunteer for good.
    """
    options = _parser().parse_args(list(arguments))
    project = options.project
    if not project.startswith(("http://", "https://")) or options.slots < 1:
        raise UsageError("STO-U003", "--project must be an http(s) URL, --slots >= 1")
    frozen = _is_frozen()
    opt_in = choose_opt_in(
        options.state,
        max_level=None if frozen else options.max_level,
        file=None if frozen else options.opt_in,
    )
    settings = Settings(
        project=project if project.endswith("/") else f"{project}/",
        key=_read_key(options.key),
        slots=options.slots,
        wishes=wishes_of(opt_in),
    )
    ledger = Ledger(options.state / "project", settings.project)
    executor = _make_executor(options, opt_in)
    transfer = Transfer(settings.project, ca=options.ca)
    volunteer = Volunteer(settings, ledger, transfer, wrap(executor))
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: volunteer.stop())
    if options.exit_with_parent:
        _watch_parent(volunteer.stop)
    try:
        volunteer.run()
    finally:
        volunteer.close()


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
        sys.stderr.write(f"volunteer: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
