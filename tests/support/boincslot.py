"""A BOINC client as a task sees it: shared memory, heartbeat, control; and a task's process.

`FakeClient` plays the client of one slot from a thread. `VerifierProcess` starts a verifier in
the slot as a process of its own, which may be killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from stoilo.executor.slot.process import parse_status, render_control
from stoilo.executor.verifier.boinc_session import (
    HEARTBEAT,
    MMAP_FILE,
    SEGMENT_BYTES,
    Channel,
    Control,
    Segment,
    open_segment,
)
from stoilo.executor.verifier.checkpoints import AppStatus
from stoilo.executor.verifier.trust import Built, render_built
from tests.support.descendants import descendants

__all__ = [
    "FakeClient",
    "VerifierProcess",
    "describe_client",
    "is_jailed",
    "is_running",
    "state_of",
    "wait_for",
]

_T = TypeVar("_T")

PATIENCE_S = 120.0
BEAT_S = 0.05
# `installed_runtimes` in place of frozen trees; all else as the frozen program does it.
PROGRAM = """
import os, sys
from pathlib import Path
from stoilo.executor.verifier.trust import parse_built
from stoilo.executor.verifier.main import Surroundings, catch_signals, run_verifier
from tests.support.slots import installed_runtimes
built = parse_built(Path(sys.argv[1]).read_bytes())
around = Surroundings(
    built, Path.cwd(), os.environ, runtimes=installed_runtimes, signals=catch_signals
)
sys.exit(run_verifier([], around))
"""


def describe_client(
    pid: int = 0,
    *,
    checkpoint_period_s: float = 0.0,
    cpu_s: float = 0.0,
    disk_bytes: int = 10**9,
) -> str:
    """Return the elements of ``init_data.xml`` that tell of client and checkpoints."""
    return (
        f"<authenticator>{'a' * 32}</authenticator>\n"
        f"<client_pid>{pid}</client_pid>\n"
        f"<wu_cpu_time>{cpu_s:f}</wu_cpu_time>\n"
        f"<checkpoint_period>{checkpoint_period_s:f}</checkpoint_period>\n"
        f"<fraction_done_start>0.000000</fraction_done_start>\n"
        f"<fraction_done_end>1.000000</fraction_done_end>\n"
        f"<rsc_disk_bound>{disk_bytes:f}</rsc_disk_bound>"
    )


class FakeClient:
    """The client's side of a slot's shared memory, from `__enter__` to `__exit__`.

    Args:
        slot: the slot's directory; its segment is made anew.
    """

    def __init__(self, slot: Path) -> None:
        path = slot / MMAP_FILE
        path.write_bytes(bytes(SEGMENT_BYTES))
        segment = open_segment(path)
        if segment is None:
            raise FileNotFoundError(path)
        self._segment: Segment = segment
        self._done = threading.Event()
        self._statuses: list[AppStatus] = []
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        """Begin to send heartbeats and to read the status."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Fall silent."""
        self._done.set()
        self._thread.join()
        self._segment.close()

    @property
    def statuses(self) -> tuple[AppStatus, ...]:
        """What the task has told so far, in order."""
        return tuple(self._statuses)

    def send(self, *wanted: Control) -> None:
        """Ask for something once the last message has been read."""
        text = render_control(*wanted)
        wait_for(lambda: self._segment.put(Channel.CONTROL_REQUEST, text))

    def wait_for_status(self, accept: Callable[[AppStatus], bool]) -> AppStatus:
        """Return the first status that `accept` takes, told already or to come."""
        wait_for(lambda: any(map(accept, self._statuses)))
        return next(filter(accept, self._statuses))

    def _play(self) -> None:
        beat = HEARTBEAT + b"<wss>1.4e+07</wss>"
        while not self._done.wait(BEAT_S):
            self._segment.put(Channel.HEARTBEAT, beat)
            text = self._segment.take(Channel.APP_STATUS)
            status = parse_status(text) if text is not None else None
            if status is not None:
                self._statuses.append(status)


class VerifierProcess:
    """A verifier's process in a slot; killed with the block.

    Args:
        slot: the slot's directory.
        built: what it was built with.
    """

    def __init__(self, slot: Path, built: Built) -> None:
        file = slot.parent.parent / "built.json"
        file.write_bytes(render_built(built))
        with (slot.parent.parent / "stderr.txt").open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(file)],
                cwd=slot,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill it, and wait until whatever it started has ended too."""
        below = self.descendants()
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not any(map(is_running, below)))

    def wait(self) -> int:
        """Return the exit code; a signal as its negative number."""
        return self.process.wait(PATIENCE_S)

    def kill(self) -> set[int]:
        """Kill it as nothing can be caught; returns what it had started."""
        below = self.descendants()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return below

    def child(self) -> int:
        """Return the pid of the jailed child, once its filter is closed."""
        wait_for(lambda: any(map(is_jailed, self.descendants())))
        return next(filter(is_jailed, self.descendants()))

    def descendants(self) -> set[int]:
        """Return the pids of everything below it."""
        return set(descendants(self.process.pid))


FILTERS_OF_A_RUN: Final = 2
"""Its own, and its zygote's."""


def state_of(pid: int) -> str:
    """Return the letter of a process's state (T: stopped), X when it has gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "X"
    return text.rpartition(") ")[2][:1]


def is_jailed(pid: int) -> bool:
    """Whether a process runs under a run's seccomp filter and its zygote's."""
    return _count_filters(pid) >= _count_filters(os.getpid()) + FILTERS_OF_A_RUN


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that is stopped has not."""
    return state_of(pid) not in "XZ"


def wait_for(condition: Callable[[], _T]) -> _T:
    """Return the first true answer of `condition`; TimeoutError when none comes."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)
    return answer


def _count_filters(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return -1
    _, _, rest = text.partition("\nSeccomp_filters:")
    return int(rest.split(None, 1)[0]) if rest else 0
