"""`stoilo-verifier`: one task of one slot, verified and run; started by the launcher.

    stoilo-verifier [--launcher=PATH] [--explain | --self-check | --version]

Its root comes from its built file, its level from the admission, its permission from the
opt-in files of this computer; no argument, variable or file of the slot chooses any of
them (I4). In a slot it ends in BOINC's ways: a result and the finish file, also for what
was refused; a request to be started again later for this machine's own trouble; neither,
when its client tells it to quit (exit 0) or to abort (194).
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from stoilo.core.errors import (
    InternalError,
    PolicyRefusal,
    StoiloError,
    TrustError,
    UsageError,
    show_plainly,
)
from stoilo.executor.verifier.boinc_session import (
    MMAP_FILE,
    QuitReason,
    Session,
    open_segment,
)
from stoilo.executor.verifier.boinc_slot import (
    Slot,
    SlotInfo,
    count_broken_run,
    finish,
    hold_slot,
    put_off,
    read_slot,
)
from stoilo.executor.verifier.checkpoints import CheckpointFile
from stoilo.executor.verifier.execution import (
    TreeRuntimes,
    VerifiedExecutor,
    refuse,
)
from stoilo.executor.verifier.host_verifier import (
    HostVerifier,
    Runtimes,
    newest_release,
)
from stoilo.executor.verifier.installation import (
    Home,
    OptIn,
    default_files,
    find_home,
    load_opt_in,
    lower_by_server,
    open_home,
    own_directory,
)
from stoilo.executor.verifier.trees import tree_cap
from stoilo.executor.verifier.trust import Built, is_frozen, load_built
from stoilo.executor.verifier.workunit import (
    Disposition,
    HostState,
    ResultHeader,
    Work,
)

OPT_IN_FILE: Final = "optin.toml"
"""In the home of a BOINC data directory: an opt-in file for this client alone."""

RETRY_S: Final = 300
"""After how long a task is tried again that this machine had trouble with, s."""

MOST_BROKEN_RUNS: Final = 3
"""So many runs of one task that ended by no word of ours: then its copy has failed here.

A machine short of memory kills, but a task may also find a way to be killed, and BOINC
would start it again a hundred times.
"""
_BROKEN_RUN: Final = frozenset({"STO-S005"})
_EXIT_CHILD_FAILED: Final = 195  # BOINC: EXIT_CHILD_FAILED

_LAUNCHER: Final = "--launcher="
_ACTIONS: Final = ("--explain", "--self-check", "--version")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside that a verifier touches; a frozen one takes it as it is."""

    built: Built  # what this program was built with
    cwd: Path  # where it was started
    environment: Mapping[str, str] = field(default_factory=dict)  # only HOME is read
    # where opt-in files may lie, besides the home's
    opt_in_files: tuple[Path, ...] = ()
    clock: Callable[[], float] = time.time  # s since 1970
    # where tasks run; tests alone pass another than frozen trees
    runtimes: Callable[[Home, Built, SlotInfo], Runtimes] | None = None
    tree: Path | None = None  # the verifier's own, None where it is not frozen
    # lets a function be called when this process is told to end
    signals: Callable[[Callable[[], None]], None] = lambda _: None
    out: TextIO = sys.stdout  # for what was asked for
    err: TextIO = sys.stderr  # for messages


@dataclass(frozen=True, slots=True)
class _Ready:
    """A slot with everything that judging its task needs."""

    slot: Slot
    work: Work
    state: Path
    host: HostState
    runtimes: Runtimes


def main() -> int:
    """Run the process; returns its exit code. The entry of the frozen verifier."""
    if not is_frozen():
        return _run_process()
    # What is imported never becomes garbage; not walking it again saves time at each
    # start.
    gc.freeze()
    gc.enable()
    # Whatever the client runs with: results and state are nobody else's business.
    os.umask(0o077)
    code = _run_process()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads any more
            stream.flush()
    os._exit(code)  # nothing is left to do, and taking all apart takes time


def _run_process() -> int:
    """Do what the command line asks for, whatever happens; returns the exit code."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="stoilo-verifier: %(message)s"
    )
    try:
        return run_verifier(sys.argv[1:], _surroundings())
    except StoiloError as error:
        return _say(sys.stderr, error)
    except Exception as error:  # noqa: BLE001 - process edge: nothing was run
        name = f"{type(error).__name__} in {_place(error)}"
        return _say(
            sys.stderr, InternalError("STO-F048", f"the verifier failed: {name}")
        )


def _place(error: BaseException) -> str:
    """Return module and line where an error came up: no path of this computer."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def _surroundings() -> Surroundings:
    """Return where this process stands; raises ``STO-F035`` when it knows no root."""
    built = load_built()
    if built is None:
        raise TrustError(
            "STO-F035",
            "this is not a frozen verifier and knows no root",
            hint="from source, run: stoilo volunteer --root FILE",
        )
    return Surroundings(
        built,
        Path.cwd(),
        os.environ,
        opt_in_files=default_files(),
        tree=Path(sys.executable).parent if is_frozen() else None,
        signals=catch_signals,
    )


def catch_signals(ask_to_quit: Callable[[], None]) -> None:
    """Have what ends a process politely end it as its client's quit would."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: ask_to_quit())


def run_verifier(arguments: Sequence[str], around: Surroundings) -> int:
    """Do what the words ask for; returns the process's exit code.

    Raises:
        StoiloError: what ends it without a result file.
    """
    launcher, action = _parse(arguments)
    if action == "--version":
        built = around.built
        around.out.write(f"stoilo-verifier {built.version} ({built.serial})\n")
        return 0
    if action == "--self-check":
        return _check_self(around, launcher)
    slot = read_slot(around.cwd)
    if action == "--explain":
        return _explain(slot, around)
    return _work(slot, around)


def _parse(arguments: Sequence[str]) -> tuple[Path | None, str]:
    """Return launcher and action; raises ``STO-U003`` for every other word."""
    launcher, actions = None, []
    for word in arguments:
        if word.startswith(_LAUNCHER) and launcher is None:
            launcher = Path(word.removeprefix(_LAUNCHER))
        elif word in _ACTIONS:
            actions.append(word)
        else:
            raise UsageError("STO-U003", f"the verifier does not know {word[:40]!r}")
    if len(actions) > 1:
        raise UsageError("STO-U003", f"only one of {', '.join(_ACTIONS)} at a time")
    return launcher, next(iter(actions), "")


def _work(slot: Slot, around: Surroundings) -> int:
    """Verify and run the slot's task; ends in the way that BOINC understands."""
    try:
        with hold_slot(slot), _session(slot, around) as session:
            return _work_for(session, slot, around)
    except InternalError as error:  # this machine's own trouble: later
        _say(around.err, error)
        # Put off without end, a task that kills its verifier would come back a hundred
        # times.
        if error.code in _BROKEN_RUN and count_broken_run(slot) >= MOST_BROKEN_RUNS:
            return _EXIT_CHILD_FAILED
        put_off(slot, RETRY_S, f"{error.code} {error.message}")
    return 0


def _work_for(session: Session, slot: Slot, around: Surroundings) -> int:
    """Verify and run the task while the client has it so; returns the exit code."""
    try:
        data = _execute(slot, around, session)
    except InternalError:
        # Killed on request: the run's error is then only the echo of it.
        if session.ending is None:
            raise
        return int(session.ending.value)
    if session.ending is QuitReason.ABORT:
        return int(session.ending.value)
    finish(slot, data)
    session.finish()
    return 0


def _session(slot: Slot, around: Surroundings) -> Session:
    session = Session(slot.info, open_segment(slot.directory / MMAP_FILE))
    around.signals(session.ask_to_quit)
    return session


def _execute(slot: Slot, around: Surroundings, session: Session) -> bytes:
    """Return the result file's bytes."""
    built = around.built
    try:
        ready = _prepare(slot, around)
        disk = slot.info.slot_bytes
        session.keep_in(CheckpointFile(slot.directory, ready.state, disk))
        executor = VerifiedExecutor(
            built.root_bytes(),
            ready.state,
            ready.host,
            clock=around.clock,
            runtimes=ready.runtimes,
            version=built.version,
            release_build=not built.development,
            keeper=session,
        )
    except (TrustError, UsageError, PolicyRefusal) as error:
        _say(around.err, error)
        return _not_here(slot, error, built)
    try:
        return executor.execute(ready.work)
    finally:
        executor.close()


def _explain(slot: Slot, around: Surroundings) -> int:
    """Say what the slot's task is, or why it does not run; runs nothing."""
    # Words for people: a verifier that runs a task starts quicker, and smaller, without.
    from stoilo.executor.verifier import inspection  # noqa: PLC0415 - said above

    try:
        ready = _prepare(slot, around)
        verifier = HostVerifier(
            around.built.root_bytes(),
            ready.state,
            ready.host,
            clock=around.clock,
            runtimes=ready.runtimes,
            release_build=not around.built.development,
        )
        verified = verifier.verify(ready.work)
    except StoiloError as error:
        around.out.write(inspection.explain_refusal(error))
        return error.exit_code
    flavor = verified.task.admission.statement.flavor
    part = verified.trust.flavor_part(flavor, ready.runtimes.platform)
    around.out.write(
        inspection.explain_task(verified.task, verified.trust, ready.host, part)
    )
    return 0


def _check_self(around: Surroundings, launcher: Path | None) -> int:
    from stoilo.executor.verifier import inspection  # noqa: PLC0415 - as in `_explain`

    built = around.built
    home = open_home(find_home(around.cwd, around.environment))
    state = home.state(built.origin)
    trust = newest_release(state, built, int(around.clock()))
    own = inspection.OwnParts(
        platform=built.platform,
        launcher=inspection.hash_program(launcher) if launcher else None,
        verifier=inspection.hash_own_tree(around.tree) if around.tree else None,
        serial=built.serial,
    )
    proofs = (inspection.read_logged(place, trust) for place in (around.cwd, state))
    logged = next(filter(None, proofs), None)
    around.out.write(inspection.render_check(inspection.check_self(trust, own, logged)))
    return 0


def _prepare(slot: Slot, around: Surroundings) -> _Ready:
    built, info = around.built, slot.info
    home = open_home(find_home(slot.directory, around.environment))
    state = home.state(built.origin)
    own_directory(state)
    opt_in = _opt_in(home, slot, around)
    make = around.runtimes or _frozen_runtimes
    return _Ready(
        slot=slot,
        work=Work(info.result, info.workunit, info.app, slot.files),
        state=state,
        host=HostState.under(opt_in, floors=built.floors, serial=built.serial),
        runtimes=make(home, built, info),
    )


def _frozen_runtimes(home: Home, built: Built, info: SlotInfo) -> Runtimes:
    return TreeRuntimes(home.flavors, built.platform, tree_cap(info.disk_bytes))


def _opt_in(home: Home, slot: Slot, around: Surroundings) -> OptIn:
    files = (*around.opt_in_files, home.path / OPT_IN_FILE)
    own = load_opt_in(files, server_writable=home.server_writable)
    return lower_by_server(own, slot.info.preferences)


def _not_here(slot: Slot, error: StoiloError, built: Built) -> bytes:
    header = ResultHeader(
        format="stoilo-result/1",
        result=slot.info.result,
        workunit=slot.info.workunit,
        disposition=Disposition.NOT_FOR_THIS_HOST,
        verifier=built.version,
    )
    return refuse(header, error, header.disposition)


def _say(stream: TextIO, error: StoiloError) -> int:
    """Write an error to `stream`, if it takes it; returns the error's exit code.

    The text may quote what a server sent; a full disk below a slot's ``stderr.txt`` must
    not cost the result that says the same.
    """
    words = " ".join(str(error).split())
    with suppress(OSError):
        stream.write(f"stoilo-verifier: {show_plainly(words)}\n")
        stream.flush()
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
