"""A real run of a real jail, looked at from outside while it sleeps, then tried to break.

Nothing here weakens the jail: it is the one that tasks get, with the probe job.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stoilo.core.levels import Level
from stoilo.core.types import MIB, RunLimits
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
from stoilo.sandbox.process.run import encode_probe
from stoilo.sandbox.process.supervisor import Jail
from stoilo.sandbox.suite.attempts import Attempted

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


class Observation(msgspec.Struct, frozen=True):
    """What was seen of real runs."""

    layers: tuple[str, ...] = ()  # what the zygote says that every run has
    # What was looked at and tried, `Attempted.place` is ``jail``
    attempts: tuple[Attempted, ...] = ()


_Seen = tuple[str, str, bool]
"""A mechanism, what would break it, and whether that was not seen."""


# --------------------------------------------------------------- from outside, by /proc


def _read_status(pid: int) -> dict[str, list[str]]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    split = (line.partition(":") for line in text.splitlines())
    return {name: rest.split() for name, _, rest in split}


def _parent_of(pid: int) -> int:
    return int(_read_status(pid)["PPid"][0])


def _is_filtered(pid: int) -> bool:
    # Whether a run has a filter besides that of its zygote, which it inherits
    try:
        own, inherited = (
            int(_read_status(one)["Seccomp_filters"][0])
            for one in (pid, _parent_of(pid))
        )
    except OSError:  # it has just ended
        return False
    return own > inherited


def _is_gone(pid: int) -> bool:
    try:
        return "Z" in _read_status(pid)["State"]
    except OSError:
        return True


@contextmanager
def _sleeping_run(jail: Jail) -> Iterator[int]:
    exchanges: list[Exchange] = []
    thread = threading.Thread(
        target=jail.run,
        args=(encode_probe(_SLEEP), LIMITS),
        kwargs={"watch": exchanges.append},
    )
    thread.start()
    try:
        yield _await_child(exchanges)
    finally:
        for exchange in exchanges:
            exchange.cancel()
        thread.join()


def _await_child(exchanges: list[Exchange]) -> int:
    """Return the pid of the run that has just begun, once its filter is closed.

    A run that has none after a while has been given the time to close it.
    """
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < _PATIENCE_S:
        pid = exchanges[-1].child_pid() if exchanges else 0
        if pid and (_is_filtered(pid) or waited > _TIME_TO_CLOSE_S):
            return pid
        time.sleep(_STEP_S)
    raise TimeoutError("no run began")


def _look_at_status(pid: int) -> Iterator[_Seen]:
    status = _read_status(pid)
    unprivileged = all(set(status[name][0]) == {"0"} for name in ("CapEff", "CapPrm"))
    # Where root is the only user here, a run shows as root to us, in its own namespace not.
    alone = is_lonely_root()
    ids = set() if alone else {*status["Uid"], *status["Gid"]}
    flagged = status["NoNewPrivs"] == ["1"]
    yield Mechanism.NO_NEW_PRIVS, "find a run without the flag", flagged
    yield Mechanism.SECCOMP, "find a run without a filter", _is_filtered(pid)
    words = "find root or a capability in a run"
    yield Mechanism.IDENTITY, words, "0" not in ids and unprivileged
    apart = os.getsid(pid) == pid == os.getpgid(pid)
    yield Mechanism.SESSION, "find a run in our session", apart
    if not alone:
        owner = Path(f"/proc/{pid}/environ").stat().st_uid
        words = "find a run whose files in /proc are its own"
        yield Mechanism.UNDUMPABLE, words, str(owner) not in status["Uid"]


def _look_at_zygotes(jail: Jail, pid: int) -> Iterator[_Seen]:
    found = []
    while pid != jail.zygote_pid:  # the init of a namespace, and who waits for it
        pid = _parent_of(pid)
        found.append(_read_status(pid))
    filtered = all(status["Seccomp"] == ["2"] for status in found)
    yield Mechanism.SECCOMP, "find a zygote without a filter", filtered
    more = any(int(one["CapPrm"][0], 16) & ~_ZYGOTE_CAPABILITIES for one in found)
    words = "find a zygote that can do more than change a run's user and kill it"
    yield Mechanism.IDENTITY, words, not more


def _look_at_limits(pid: int) -> Iterator[_Seen]:
    text = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    hard = {line[:26].strip(): line[47:68].strip() for line in text.splitlines()[1:]}
    zero = ("Max file size", "Max core file size", "Max locked memory")
    bounded = ("Max cpu time", "Max address space", "Max open files")
    fine = all(hard[name] == "0" for name in zero)
    fine = fine and all(hard[name] != "unlimited" for name in bounded)
    yield Mechanism.RLIMITS, "find a limit that is not set", fine


def _look_at_links(pid: int, layers: Sequence[str]) -> Iterator[_Seen]:
    # Look at what only root may: open descriptors, namespaces
    try:
        opened = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return
    words = "find an open descriptor beyond the run's own"
    yield Mechanism.DESCRIPTORS, words, opened <= _FIXED_DESCRIPTORS
    for layer in layers:
        name = layer.removeprefix("namespace_")
        link = f"ns/{_NAMESPACES.get(name, name)}"
        if name != layer and Path(f"/proc/self/{link}").exists():
            ours = Path(f"/proc/self/{link}").readlink()
            try:
                theirs = Path(f"/proc/{pid}/{link}").readlink()
            except OSError:
                continue
            yield layer, "find a run in our namespace", theirs != ours


def _end_zygote(jail: Jail, pid: int) -> Iterator[_Seen]:
    # In the middle of a run, which must end as well
    jail.close()
    deadline = time.monotonic() + _PATIENCE_S / 5
    while time.monotonic() < deadline and not _is_gone(pid):
        time.sleep(_STEP_S)
    words = "find a run that outlived its zygote"
    yield Mechanism.PARENT_DEATH, words, _is_gone(pid)


# --------------------------------------------------------------- from inside, by programs


def _try_inside(jail: Jail) -> Iterator[_Seen]:
    forking, taking, looking = (
        jail.run(encode_probe(source), LIMITS)
        for source in ("import os; os.fork()", "x = bytearray(1 << 40)", _DESCRIPTORS)
    )
    stopped = forking.syscall in {"clone", "fork"}
    yield Mechanism.SECCOMP, "start a process: killed, and the call named", stopped
    yield Mechanism.RLIMITS, "take a tebibyte", b"MemoryError" in taking.frame
    fine = looking.frame != b"" and looking.output == b""
    yield Mechanism.DESCRIPTORS, "use a descriptor beyond its own", fine


def _try_calls(level: Level, command: Callable[[], Sequence[str]]) -> Iterator[_Seen]:
    # Try many calls in errno mode, where each is exercised
    with Jail(level, PROBE_JOB, command=command, denied=Denied.ERRNO) as jail:
        report = jail.run(encode_probe(_CALLS), LIMITS)
    words = f"{_CALLS.count('attempt(') - 1} calls in errno mode"
    yield Mechanism.SECCOMP, words, report.frame != b"" and report.output == b""


def _look(
    jail: Jail, level: Level, command: Callable[[], Sequence[str]]
) -> Iterator[_Seen]:
    yield from _try_inside(jail)
    with _sleeping_run(jail) as pid:
        yield from _look_at_zygotes(jail, pid)
        yield from _look_at_status(pid)
        yield from _look_at_limits(pid)
        yield from _look_at_links(pid, jail.layers)
        yield from _end_zygote(jail, pid)
    yield from _try_calls(level, command)


def observe(level: Level, command: Callable[[], Sequence[str]]) -> Observation:
    """Look at real runs of `level` and try them; nothing where no plain program runs.

    Raises:
        PolicyRefusal: this host cannot make the jail.
    """
    bare = msgspec.structs.replace(level, preload=())
    with Jail(bare, PROBE_JOB, command=command) as jail:
        layers = jail.layers
        report = jail.run(encode_probe("print(1)"), LIMITS)
        if report.output != b"1\n" or not report.frame:
            return Observation()  # nothing that fails afterwards means anything
        seen = [
            Attempted(str(name), words, "jail", None, not fine)
            for name, words, fine in _look(jail, bare, command)
        ]
    return Observation(layers, tuple(seen))
