"""A real run of a real jail, looked at from outside while it sleeps, then tried to break.

Nothing here weakens the jail: it is the one that tasks get, with the probe job.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stoilo.core.levels import Level
from stoilo.core.limits import MIB, RunLimits
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.kernel.mechanisms import (
    CAP_KILL,
    CAP_SETGID,
    CAP_SETUID,
    Mechanism,
    is_lonely_root,
)
from stoilo.sandbox.process.channel import PROBE_JOB
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.report import JailReport
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.suite.verdicts import Attempt

LIMITS = RunLimits(cpu_s=5, wall_s=10, memory_bytes=64 * MIB)
_PATIENCE_S, _TIME_TO_CLOSE_S, _STEP_S = 8.0, 1.0, 0.01
_NAMESPACES = {"mount": "mnt"}
_FIXED_DESCRIPTORS = frozenset(range(5))
_ZYGOTE_CAPABILITIES = 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID

_SLEEP = "import time; time.sleep(9)"
_DESCRIPTORS = """
import os
for number in range(5, 1024):
    try:
        os.lseek(number, 0, 1)
        print("REACHED")
    except OSError as error:
        if error.errno != 9:
            print("REACHED")
"""
_CALLS = """
import os, time
def attempt(call, *arguments):
    try:
        call(*arguments)
        print("REACHED", call.__name__)
    except OSError:
        pass
attempt(os.fork)
attempt(os.open, "/", os.O_RDONLY)
attempt(os.mkdir, "/tmp/stoilo-selftest-made")
attempt(os.kill, os.getppid(), 0)
attempt(os.kill, -1, 0)
attempt(os.setuid, 0)
attempt(os.chmod, "/", 0o755)
attempt(os.memfd_create, "x")
attempt(os.pidfd_open, os.getppid())
attempt(os.execv, "/bin/true", ["true"])
attempt(os.chroot, "/")
attempt(os.pipe)
attempt(os.dup, 1)
attempt(os.setpriority, 0, 0, -1)
attempt(os.sched_setaffinity, 0, {0})
attempt(os.getrandom, 1)
attempt(os.stat, "/")
attempt(os.listdir, "/")
attempt(os.uname)
attempt(time.clock_settime, 0, 0.0)
"""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of real runs."""

    layers: tuple[str, ...]  # what the zygote says that every run has
    # What was looked at and tried, `Attempt.place` is ``jail``
    attempts: tuple[Attempt, ...]


class UnusableJailError(Exception):
    """A plain program did not run in the jail; the argument says why."""


def _check_works(jail: Jail) -> None:
    # Nothing that fails afterwards means anything otherwise
    report = jail.run(encode_probe("print(1)"), LIMITS)
    if report.output != b"1\n" or not report.frame:
        raise UnusableJailError(report.detail)


def _see(mechanism: str, words: str, *, fine: bool) -> Attempt:
    return Attempt(mechanism, words, "jail", None, not fine)


# --------------------------------------------------------------- from outside, by /proc


def _read_status(pid: int) -> dict[str, list[str]]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    split = (line.partition(":") for line in text.splitlines())
    return {name: rest.split() for name, _, rest in split}


def _descendants(pid: int) -> set[int]:
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            below.setdefault(int(_read_status(int(path.name))["PPid"][0]), []).append(
                int(path.name)
            )
        except (OSError, KeyError):
            continue
    found, waiting = set(), [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found


def _await_child(jail: Jail, at_rest: set[int]) -> int:
    """Return the pid of the run that has just begun, once its filter is closed.

    A run that has none after a while has been given the time to close it.
    """
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < _PATIENCE_S:
        for pid in _descendants(jail.zygote_pid) - at_rest:
            if _is_filtered(pid) or waited > _TIME_TO_CLOSE_S:
                return pid
        time.sleep(_STEP_S)
    raise TimeoutError("no run began")


def _is_filtered(pid: int) -> bool:
    # Whether a run has a filter besides that of its zygote, which it inherits
    try:
        status = _read_status(pid)
        zygote = _read_status(int(status["PPid"][0]))
    except OSError:  # it has just ended
        return False
    own, inherited = (int(one["Seccomp_filters"][0]) for one in (status, zygote))
    return own > inherited


@contextmanager
def _sleeping_run(jail: Jail) -> Iterator[int]:
    at_rest = _descendants(jail.zygote_pid)
    exchanges: list[Exchange] = []
    thread = threading.Thread(
        target=jail.run,
        args=(encode_probe(_SLEEP), LIMITS),
        kwargs={"watch": exchanges.append},
    )
    thread.start()
    try:
        yield _await_child(jail, at_rest)
    finally:
        for exchange in exchanges:
            exchange.cancel()
        thread.join()


def _look_at_status(pid: int) -> Iterator[Attempt]:
    status = _read_status(pid)
    privileged = any(set(status[name][0]) != {"0"} for name in ("CapEff", "CapPrm"))
    # Where root is the only user here, a run shows as root to us, in its own namespace not.
    alone = is_lonely_root()
    ids = set() if alone else {*status["Uid"], *status["Gid"]}
    yield _see(
        Mechanism.NO_NEW_PRIVS,
        "find a run without the flag",
        fine=status["NoNewPrivs"] == ["1"],
    )
    yield _see(
        Mechanism.SECCOMP,
        "find a run without a filter",
        fine=_is_filtered(pid),
    )
    yield _see(
        Mechanism.IDENTITY,
        "find root or a capability in a run",
        fine="0" not in ids and not privileged,
    )
    yield _see(
        Mechanism.SESSION,
        "find a run in our session",
        fine=os.getsid(pid) == pid == os.getpgid(pid),
    )
    if not alone:
        owner = Path(f"/proc/{pid}/environ").stat().st_uid
        yield _see(
            Mechanism.UNDUMPABLE,
            "find a run whose files in /proc are its own",
            fine=str(owner) not in status["Uid"],
        )


def _look_at_zygotes(jail: Jail) -> Iterator[Attempt]:
    pids = (jail.zygote_pid, *_descendants(jail.zygote_pid))
    found = [_read_status(pid) for pid in pids]
    yield _see(
        Mechanism.SECCOMP,
        "find a zygote without a filter",
        fine=all(status["Seccomp"] == ["2"] for status in found),
    )
    yield _see(
        Mechanism.IDENTITY,
        "find a zygote that can do more than change a run's user and kill it",
        fine=not any(
            int(one["CapPrm"][0], 16) & ~_ZYGOTE_CAPABILITIES for one in found
        ),
    )


def _look_at_limits(pid: int) -> Iterator[Attempt]:
    text = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    hard = {line[:26].strip(): line[47:68].strip() for line in text.splitlines()[1:]}
    zero = ("Max file size", "Max core file size", "Max locked memory")
    bounded = ("Max cpu time", "Max address space", "Max open files")
    fine = all(hard[name] == "0" for name in zero)
    fine = fine and all(hard[name] != "unlimited" for name in bounded)
    yield _see(Mechanism.RLIMITS, "find a limit that is not set", fine=fine)


def _look_at_links(pid: int, layers: Sequence[str]) -> Iterator[Attempt]:
    # Look at what only root may: open descriptors, namespaces
    try:
        opened = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return
    yield _see(
        Mechanism.DESCRIPTORS,
        "find an open descriptor beyond the run's own",
        fine=opened <= _FIXED_DESCRIPTORS,
    )
    for layer in layers:
        name = layer.removeprefix("namespace_")
        link = f"ns/{_NAMESPACES.get(name, name)}"
        if name != layer and Path(f"/proc/self/{link}").exists():
            ours = Path(f"/proc/self/{link}").readlink()
            try:
                theirs = Path(f"/proc/{pid}/{link}").readlink()
            except OSError:
                continue
            yield _see(layer, "find a run in our namespace", fine=theirs != ours)


def _kill_zygote(jail: Jail) -> Attempt:
    # End the zygote in the middle of a run; the run must end as well
    with _sleeping_run(jail) as pid:
        jail.close()
        deadline = time.monotonic() + _PATIENCE_S / 5
        while time.monotonic() < deadline and not _is_gone(pid):
            time.sleep(_STEP_S)
        fine = _is_gone(pid)
    words = "find a run that outlived its zygote"
    return _see(Mechanism.PARENT_DEATH, words, fine=fine)


def _is_gone(pid: int) -> bool:
    try:
        return "Z" in _read_status(pid)["State"]
    except OSError:
        return True


# --------------------------------------------------------------- from inside, by programs


def _try_inside(run: Callable[[str], JailReport]) -> Iterator[Attempt]:
    report = run("import os; os.fork()")
    yield _see(
        Mechanism.SECCOMP,
        "start a process: killed, and the call named",
        fine=report.syscall in {"clone", "fork"},
    )
    report = run("x = bytearray(1 << 40)")
    fine = report.frame != b"" and b"MemoryError" in report.frame
    yield _see(Mechanism.RLIMITS, "take a tebibyte", fine=fine)
    report = run(_DESCRIPTORS)
    fine = report.frame != b"" and report.output == b""
    yield _see(Mechanism.DESCRIPTORS, "use a descriptor beyond its own", fine=fine)


def _try_calls(level: Level, command: Callable[[], Sequence[str]]) -> Attempt:
    # Try many calls in errno mode, where each is exercised
    with Jail(level, PROBE_JOB, command=command, denied=Denied.ERRNO) as jail:
        report = jail.run(encode_probe(_CALLS), LIMITS)
    words = f"{_CALLS.count('attempt(') - 1} calls in errno mode"
    fine = report.frame != b"" and report.output == b""
    return _see(Mechanism.SECCOMP, words, fine=fine)


def observe(level: Level, command: Callable[[], Sequence[str]]) -> Observation:
    """Look at real runs of `level` and try them.

    Raises:
        PolicyRefusal: this host cannot make the jail.
        UnusableJailError: a plain program does not run in it.
    """
    bare = msgspec.structs.replace(level, preload=())
    with Jail(bare, PROBE_JOB, command=command) as jail:
        layers = jail.layers
        _check_works(jail)
        seen = list(_try_inside(lambda source: jail.run(encode_probe(source), LIMITS)))
        seen += _look_at_zygotes(jail)
        with _sleeping_run(jail) as pid:
            seen += _look_at_status(pid)
            seen += _look_at_limits(pid)
            seen += _look_at_links(pid, layers)
        seen.append(_kill_zygote(jail))
    seen.append(_try_calls(bare, command))
    return Observation(layers, tuple(seen))
