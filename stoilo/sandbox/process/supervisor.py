"""The supervisor's side of the jail: starts the zygote, feeds a child, believes little.

`Jail.run` may be called from many threads at once (each call polls its own descriptors), and
from asyncio by `asyncio.to_thread`. It reads at most the allowed bytes within the allowed
time, then has the child killed; what the child wrote is returned as untrusted bytes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from stoilo.core.errors import InternalError, PolicyRefusal, UsageError
from stoilo.core.levels import Level, LevelLimits, SyscallRules
from stoilo.core.types import RunLimits
from stoilo.sandbox.kernel import filters
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.process.channel import (
    PROBE_JOB,
    Hello,
    Programs,
    Ready,
    receive,
    send,
)
from stoilo.sandbox.process.exchange import Exchange
from stoilo.sandbox.process.report import JailReport, MemoryKills

_NEEDED = frozenset({"avx2", "fma", "bmi1", "bmi2"})
_PINNED = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
}


@functools.cache
def read_processor_flags() -> frozenset[str]:
    """Return what this host's first processor can do, empty where Linux does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())


def pin_instructions(
    machine: str | None = None, flags: frozenset[str] | None = None
) -> dict[str, str]:
    """Return the environment variables that choose the common instructions.

    Empty on other architectures and on older processors, where the libraries' own
    choice is the only one that runs: their results may differ in the last digits.
    """
    machine = platform.machine() if machine is None else machine
    flags = read_processor_flags() if flags is None else flags
    return dict(_PINNED) if machine == "x86_64" and flags >= _NEEDED else {}


# Where a zygote finds its libraries, said by the supervisor instead of looked for -----
#
# The interpreter's own search (the module `site`) reads every ``.pth`` file, runs what they
# hold and what a distribution put into ``sitecustomize``: 3 ms of every cold start, and code
# that nobody listed.


@functools.cache
def library_folders() -> tuple[str, ...]:
    """Return the absolute folders of installed libraries and of stoilo itself.

    Never the user's own site folder, the current folder or one of ``PYTHONPATH``.
    """
    own = str(Path(__file__).resolve().parents[3])
    return tuple(dict.fromkeys((*site.getsitepackages(), own)))


# Without runpy, which would cost 3 ms, and msgspec's typing_extensions, 2 ms; collecting while
# importing would cost a tenth, and the zygote collects again once it has frozen its heap.
_ENTRY = """
import gc, sys
gc.disable()
sys.path += {folders!r}
sys.modules["typing_extensions"] = None
import msgspec
del sys.modules["typing_extensions"]
from stoilo.sandbox.process.zygote import main
main()
"""
START_S = 120.0  # how long a zygote may take to import its preload list


def zygote_command() -> list[str]:
    """Return the argument list that starts a zygote; nothing in it is a choice."""
    entry = _ENTRY.format(folders=list(library_folders()))
    return [sys.executable, "-S", "-s", "-P", "-c", entry]


def zygote_environment() -> dict[str, str]:
    """Return the whole environment of a zygote: fixed words, for equal results (I7).

    The interpreter's ``-I`` would ignore the hash seed, so the command uses its other two
    parts (``-s -P``, and ``-S``: see `environment`) and the environment holds no other
    variable that Python reads.
    """
    threads = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB", "BLIS")
    return {
        "PYTHONHASHSEED": "0",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # each page touched costs a fault
        **{f"{name}_NUM_THREADS": "1" for name in threads},
        **pin_instructions(),
        "FBGEMM_NO_ASMJIT": "1",
        "JOBLIB_MULTIPROCESSING": "0",  # scikit-learn's: else it loads cloudpickle
    }


@functools.lru_cache(maxsize=32)
def _build_programs(level_digest: str, level: _Hashable, denied: Denied) -> Programs:
    del level_digest
    rules = level.level.syscalls
    several = level.level.max_limits().threads > 1
    return Programs(
        single=filters.build_filter(rules, threads=False, denied=denied),
        threaded=filters.build_filter(rules, threads=True, denied=denied),
        zygote=filters.build_zygote_filter(rules, threads=several),
        waiter=filters.build_waiter_filter(),
    )


class _Hashable:
    """A level as a cache key: those of one name, digest, filter and limits are the same."""

    def __init__(self, level: Level) -> None:
        self.level = level

    def __hash__(self) -> int:
        return hash((self.level.name, self.level.digest))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and self._parts() == other._parts()

    def _parts(self) -> tuple[SyscallRules, LevelLimits]:
        return self.level.syscalls, self.level.limits


class ZygoteProcess:
    """One running zygote: its process, control socket and what it achieved."""

    def __init__(self, command: Sequence[str], hello: Hello) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control = ours
        with theirs:
            self.process = subprocess.Popen(
                list(command),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=zygote_environment(),
                cwd="/",
                start_new_session=True,
            )
        try:
            self.ready = self._introduce(hello)
        except BaseException:
            self.close()
            raise

    def _introduce(self, hello: Hello) -> Ready:
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.control.settimeout(START_S)
        try:
            send(self.control, hello)
            answer = receive(self.control, Ready)
        except (OSError, msgspec.MsgspecError) as error:
            raise InternalError(
                "STO-S003", f"the zygote did not start: {error}"
            ) from error
        if answer is None:
            raise InternalError("STO-S003", "the zygote ended before it was ready")
        self.control.settimeout(None)
        return answer[0]

    def check_alive(self) -> None:
        """Raise OSError when the process has ended."""
        if self.process.poll() is not None:
            raise BrokenPipeError

    def close(self) -> None:
        """Kill the zygote, and with it every child; reap it."""
        self.control.close()
        with contextlib.suppress(PermissionError):  # it ends with its control socket
            self.process.kill()
        self.process.wait()


class Jail:
    """A warm jail for one level and one job.

    Args:
        level: what runs may do (trusted).
        job: dotted name of the job module (trusted; one of `channel`'s).
        preload: modules imported besides the level's list.
        command: how to start the zygote; tests alone pass another.
        denied: what a call outside the level gets; ``ERRNO`` for the probe job only.
        niceness: how far its runs leave the processor to others, as nice(2) has it.

    Raises:
        PolicyRefusal: ``STO-S002`` names the mandatory mechanism that this host lacks,
            ``STO-S002`` that it is not Linux.
        UsageError: ``STO-S030`` a module to preload cannot be imported.
        InternalError: ``STO-S003`` the zygote did not start, ``STO-S003`` libseccomp,
            ``STO-S003`` errno mode was asked for another job than the probe.
    """

    def __init__(
        self,
        level: Level,
        job: str,
        *,
        preload: tuple[str, ...] = (),
        command: Callable[[], Sequence[str]] = zygote_command,
        denied: Denied = Denied.KILL,
        niceness: int = 0,
    ) -> None:
        _check_denied(denied, job)
        self._niceness = niceness
        self._level = level
        self._denied = denied
        self._job = job
        self._preload = preload
        self._command = command
        self._lock = threading.Lock()
        self._memory_kills = MemoryKills()
        self._zygote: ZygoteProcess | None = None
        with self._lock:
            self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the mechanisms that every run of this jail has."""
        with self._lock:
            return (self._zygote or self._start()).ready.layers

    @property
    def zygote_pid(self) -> int:
        """Pid of the zygote process, for tests and process lists."""
        with self._lock:
            return (self._zygote or self._start()).process.pid

    def _start(self) -> ZygoteProcess:
        _check_platform()
        hello = Hello(
            level=self._level,
            job=self._job,
            preload=self._preload,
            programs=_load_programs(self._level, self._denied),
            supervisor=os.getpid(),
            niceness=self._niceness,
        )
        zygote = ZygoteProcess(self._command(), hello)
        try:
            _check_ready(zygote.ready)
        except BaseException:
            zygote.close()
            raise
        self._zygote = zygote
        return zygote

    def _begin(self, exchange: Exchange) -> ZygoteProcess:
        # Hand the run to the zygote, to a new one when the old one has died
        with self._lock:
            zygote = self._zygote or self._start()
            try:
                zygote.check_alive()
                exchange.begin(zygote.control)
            except OSError:
                zygote.close()
                self._zygote = None
                zygote = self._start()
                exchange.begin(zygote.control)
            return zygote

    def run(
        self,
        request: bytes,  # untrusted bytes for the job
        limits: RunLimits,  # CPU s, wall s, bytes, threads
        wall_s: float | None = None,  # a shorter wall time, s
        *,
        # Gets each attempt's exchange, whose ``cancel`` ends it early
        watch: Callable[[Exchange], object] | None = None,
    ) -> JailReport:
        """Run the job on `request` in a fresh jailed child.

        Returns:
            What happened; frame and output are untrusted.

        Raises:
            InternalError: ``STO-S003`` when a zygote cannot be started again.
        """
        wall = float(limits.wall_s)
        wall = wall if wall_s is None else min(wall, wall_s)
        watch = watch or _ignore
        exchange, report = self._attempt(Exchange(request, limits, wall), watch)
        if exchange.never_started and not exchange.cancelled:
            # The zygote died with the order unread
            exchange, report = self._attempt(Exchange(request, limits, wall), watch)
        return report

    def _attempt(
        self, exchange: Exchange, watch: Callable[[Exchange], object]
    ) -> tuple[Exchange, JailReport]:
        with exchange:
            watch(exchange)
            if exchange.cancelled:
                return exchange, exchange.give_up()
            zygote = self._begin(exchange)
            report = exchange.finish(zygote.ready.layers, self._memory_kills)
        if exchange.zygote_silent:
            self._discard(zygote)
        return exchange, report

    def _discard(self, zygote: ZygoteProcess) -> None:
        # Its children die with it: no run goes on that nobody watches.
        with self._lock:
            zygote.close()
            if self._zygote is zygote:
                self._zygote = None

    def close(self) -> None:
        """End the zygote and every child. A later run would start a new one."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None


def _ignore(exchange: Exchange) -> None:
    del exchange


def _check_platform() -> None:
    if not sys.platform.startswith("linux"):
        raise PolicyRefusal(
            "STO-S002",
            "the jail needs Linux",
            hint="run the executor in a Linux virtual machine or container",
        )


def _check_denied(denied: Denied, job: str) -> None:
    # A call that fails politely tells a task what there is to try next.
    if denied is not Denied.KILL and job != PROBE_JOB:
        raise InternalError("STO-S003", f"errno mode is for probes only, not for {job}")


def _load_programs(level: Level, denied: Denied) -> Programs:
    try:
        return _build_programs(level.digest, _Hashable(level), denied)
    except (ImportError, RuntimeError, OSError) as error:
        raise InternalError(
            "STO-S003",
            f"the system call filter cannot be built: {error}",
            hint="install libseccomp2 and the extra: pip install 'stoilo[executor]'",
        ) from error


def _check_ready(ready: Ready) -> None:
    if ready.missing:
        raise PolicyRefusal(
            "STO-S002",
            f"this host lacks a mandatory mechanism: {', '.join(ready.missing)}",
            hint="update the kernel or allow the mechanism; nothing weaker is used",
        )
    if ready.failed_import:
        raise UsageError(
            "STO-S030", f"a module to preload cannot be imported: {ready.failed_import}"
        )
    if ready.error:
        raise InternalError("STO-S003", f"the zygote did not start: {ready.error}")
