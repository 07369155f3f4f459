"""The whole self-test: what is there, trials alone, a real run; one row a mechanism."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from stoilo.core.errors import InternalError
from stoilo.sandbox.kernel import filters, mechanisms
from stoilo.sandbox.kernel.mechanisms import (
    KernelHost,
    Mechanism,
    detect_abi,
    find_missing,
)
from stoilo.sandbox.process.supervisor import zygote_command, zygote_environment
from stoilo.sandbox.suite.attempts import Attempted
from stoilo.sandbox.suite.confinement import Order, Tried
from stoilo.sandbox.suite.observation import Observation, observe

if TYPE_CHECKING:
    from stoilo.core.levels import Level


class State(StrEnum):
    """Whether this machine has a mechanism, and whether a run had it."""

    MISSING = "missing"
    PRESENT = "present"
    ACTIVE = "active"


class Verdict(StrEnum):
    """What became of the attempts to break a mechanism."""

    HELD = "held"
    DID_NOT_HOLD = "did not hold"
    NOT_TRIED = "not tried"
    MISSING = "missing"


class Row(msgspec.Struct, frozen=True):
    """One mechanism of the table."""

    mechanism: str  # its name
    mandatory: bool  # whether no run takes place without it
    state: State  # what this machine and a real run had
    attempts: tuple[Attempted, ...] = ()  # how it was tried to break
    detail: str = ""  # what else is to say (a version), empty if nothing

    @property
    def verdict(self) -> Verdict:
        """Broken by one success; held where an attempt that tells something failed."""
        if self.state is State.MISSING:
            return Verdict.MISSING
        if any(attempt.reached for attempt in self.attempts):
            return Verdict.DID_NOT_HOLD
        if any(attempt.tells for attempt in self.attempts):
            return Verdict.HELD
        return Verdict.NOT_TRIED


EXIT_CODES = {
    Verdict.HELD: 0,
    Verdict.MISSING: 3,
    Verdict.DID_NOT_HOLD: 4,
    Verdict.NOT_TRIED: 4,
}
"""For the worst mandatory row; what could not be tried is not claimed to hold."""


def judge_rows(rows: Iterable[Row]) -> int:
    """Return the exit code: 0 every mandatory mechanism holds, 3 one missing, 4 broken.

    A mechanism that broke counts more than one that is missing: a jail would be made. An
    optional one counts only where a run had it.
    """
    codes = {EXIT_CODES[row.verdict] for row in rows if row.mandatory}
    if any(row.verdict is Verdict.DID_NOT_HOLD for row in rows):
        codes.add(EXIT_CODES[Verdict.DID_NOT_HOLD])
    return max(codes, default=0)


OPTIONAL = (
    *(
        f"namespace_{name}"
        for name in ("user", "pid", "net", "ipc", "uts", "mount", "cgroup", "root")
    ),
    mechanisms.LAYER,
    *mechanisms.LAYERS.values(),
)
"""Mechanisms that a run has where the host allows them; their absence refuses nothing."""

TRIALS_ENTRY = "from stoilo.sandbox.suite.confinement import main; main()"
_TRIALS_S = 120.0


def trials_command() -> list[str]:
    """Return the argument list of the process that runs the trials."""
    return [sys.executable, "-s", "-P", "-c", TRIALS_ENTRY]


def _run_trials(order: Order, command: Sequence[str]) -> Tried:
    """Run the trials in a process of their own.

    Raises:
        InternalError: ``STO-S003``, the process broke or took too long.
    """
    try:
        done = subprocess.run(
            list(command),
            input=msgspec.msgpack.encode(order),
            capture_output=True,
            env=zygote_environment(),
            cwd="/",
            timeout=_TRIALS_S,
            check=True,
        )
        return msgspec.msgpack.decode(done.stdout, type=Tried)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InternalError("STO-S003", f"the trials broke: {said}") from error
    except (subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        raise InternalError("STO-S003", f"the trials broke: {error}") from error


def _make_row(
    name: str,
    attempts: Iterable[Attempted],
    *,
    mandatory: bool,
    missing: Iterable[str],
    layers: Iterable[str],
) -> Row:
    state = State.PRESENT if mandatory else State.MISSING
    if name in missing:
        state = State.MISSING
    elif name in layers:
        state = State.ACTIVE
    return Row(
        mechanism=name,
        mandatory=mandatory,
        state=state,
        attempts=tuple(a for a in attempts if a.mechanism == name),
        detail=f"ABI {detect_abi()}" if name == Mechanism.LANDLOCK else "",
    )


def run_selftest(
    level: Level,  # whose filter and limits are tried (trusted)
    *,
    # How to find out what this machine has; tests pass one that lacks something
    host: KernelHost | None = None,
    # How to start a zygote; tests pass a weakened one
    zygote: Callable[[], Sequence[str]] = zygote_command,
    # How to start the trials; likewise
    trials: Callable[[], Sequence[str]] = trials_command,
    only: tuple[str, ...] = (),  # mechanisms to try, empty for all
) -> tuple[Row, ...]:
    """Try to break every mechanism of the jail on this machine.

    Takes about five seconds, two of them processor time that a limit must end.

    Raises:
        InternalError: ``STO-S003`` the trials broke, the zygote did.
    """
    missing = tuple(m.value for m in find_missing(host or KernelHost()))
    program = filters.build_filter(level.syscalls, threads=False)
    tried = _run_trials(Order(program, missing, only), trials())
    missing += tried.inapplicable
    seen = observe(level, zygote) if not missing else Observation()
    other = not sys.platform.startswith("linux")
    system = Attempted("linux", "find another system", "jail", None, other)
    attempts = (system, *tried.attempts, *seen.attempts)
    layers = ("linux", *seen.layers)
    return tuple(
        _make_row(name, attempts, mandatory=mandatory, missing=missing, layers=layers)
        for name, mandatory in (
            *((m.value, True) for m in Mechanism),
            *((name, False) for name in OPTIONAL),
        )
        if not only or name in only
    )


# For people and programs ----------------------------------------------------------------


_CONTROLS = {True: "gets through without it", False: "fails anyway", None: ""}


def _show_attempt(attempt: Attempted) -> str:
    result = "GOT THROUGH" if attempt.reached else "stopped"
    line = f"    {attempt.place:<6}{attempt.words:<50}{result:<13}"
    return (line + _CONTROLS[attempt.control]).rstrip()


def render_table(rows: Iterable[Row]) -> Iterator[str]:
    """Return the lines of the table that a person reads."""
    yield f"{'mechanism':<30}{'mandatory':<12}{'state':<10}result"
    for row in rows:
        name = f"{row.mechanism} ({row.detail})" if row.detail else row.mechanism
        mandatory = "yes" if row.mandatory else "no"
        yield f"{name:<30}{mandatory:<12}{row.state.value:<10}{row.verdict.value}"
        yield from map(_show_attempt, row.attempts)


def as_data(row: Row) -> dict[str, Any]:
    """Return the row as it stands in JSON."""
    return {
        "mechanism": row.mechanism,
        "mandatory": row.mandatory,
        "state": row.state.value,
        "detail": row.detail or None,
        "result": row.verdict.value,
        "attempts": [
            {
                "place": attempt.place,
                "attempt": attempt.words,
                "through_without": attempt.control,
                "through": attempt.reached,
            }
            for attempt in row.attempts
        ],
    }
