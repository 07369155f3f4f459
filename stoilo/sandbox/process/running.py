"""A run as its supervisor holds it: the child's process, and how long it has really run.

A child that is stopped takes no processor time, and the time that it stands still does not
count towards its wall limit.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable

_INFO_BYTES = 1 << 16


class RunningChild:
    """The jailed child by its pidfd, which this object owns; signals hit no other.

    Attributes:
        pid: as this process sees it, 0 where it cannot be found out.
    """

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self.pid = _read_pid(pidfd)
        self._zygote = _read_parent(self.pid)
        self._cpu_s = self._zygote_cpu_s = 0.0

    def stop(self) -> None:
        """Let every thread of it stand still."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def cpu_s(self) -> float:
        """Return its processor time, s; the last known once it has ended."""
        self._cpu_s = _read_cpu_s(self.pid, self._cpu_s)
        return self._cpu_s

    def zygote_cpu_s(self) -> float:
        """Return the processor time of the zygote that started it, s."""
        self._zygote_cpu_s = _read_cpu_s(self._zygote, self._zygote_cpu_s)
        return self._zygote_cpu_s

    def close(self) -> None:
        """Let go of it; it may run on. Its times stay what they are now."""
        self.cpu_s()
        self.zygote_cpu_s()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd, self.pid, self._zygote = -1, 0, 0

    def _signal(self, number: int) -> None:
        try:
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            pass  # it has ended


def _read_cpu_s(pid: int, before: float) -> float:
    """Return a process's time, s; `before` when it has ended or is not known.

    Its clock is CPUCLOCK_SCHED of linux/posix-timers.h.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2) if pid else before
    except OSError:
        return before


def _read_parent(pid: int) -> int:
    """Return the pid of a process's parent, 0 if it is not told."""
    words = _read_proc(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def _read_pid(pidfd: int) -> int:
    """Return the pid behind `pidfd` in this process's namespace, 0 if it is not told."""
    match = re.search(
        rb"^Pid:\s*([0-9]{1,10})$",
        _read_proc(f"/proc/self/fdinfo/{pidfd}"),
        re.MULTILINE,
    )
    return int(match[1]) if match else 0


def _read_proc(path: str) -> bytes:
    """Return what a small file of proc(5) says; nothing where it, or its process, is gone.

    A process that ends after the opening lets the read fail with ESRCH.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _INFO_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _count_memory_kills() -> int | None:
    """Return how many processes this kernel has killed for want of memory, None unknown.

    In control groups too (proc_vmstat(5), since Linux 4.13).
    """
    match = re.search(
        rb"^oom_kill ([0-9]{1,19})$", _read_proc("/proc/vmstat"), re.MULTILINE
    )
    return int(match[1]) if match else None


class MemoryKills:
    """Whether the kernel killed for want of memory while something ran. Thread-safe.

    Args:
        count: how many it has killed since it started, None where it does not tell.
        clock: monotonic, s.
    """

    def __init__(
        self,
        count: Callable[[], int | None] = _count_memory_kills,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._known, self._seen = count(), clock()

    def since(self, begun: float) -> bool:
        """Say whether it may have, at `begun` or later; what is not told may have been."""
        with self._lock:
            now = self._count()
            if now is None or now != self._known:
                self._known, self._seen = now, self._clock()
            return self._seen >= begun


class Stopwatch:
    """Counts seconds from `start`, without those between `pause` and `resume`.

    Thread-safe; pausing twice is pausing once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counted = 0.0
        self._since: float | None = None
        self._paused = False

    def start(self) -> None:
        """Begin to count, unless it is paused."""
        with self._lock:
            if not self._paused:
                self._since = self._clock()

    def pause(self) -> None:
        """Stand still; before `start`, wait for `resume` to begin."""
        with self._lock:
            self._counted = self._read()
            self._since, self._paused = None, True

    def resume(self) -> None:
        """Go on after `pause`."""
        with self._lock:
            if self._paused:
                self._since, self._paused = self._clock(), False

    def elapsed_s(self) -> float:
        """Return what it has counted, s."""
        with self._lock:
            return self._read()

    def _read(self) -> float:
        if self._since is None:
            return self._counted
        return self._counted + self._clock() - self._since
