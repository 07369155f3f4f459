"""Work beside the caller's: chores in a thread, an event loop in one; waits that end early."""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from stoilo.core.errors import InternalError, StoiloError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Repeater:
    """Some chores, one after the other, again and again in one thread.

    Args:
        name: of the thread.
        chores: each returns whether, or how often, there was anything to do.
        idle_s: pause when there was nothing, s.

    Attributes:
        trouble: what kept the first chore that failed in the latest round, None for none.
    """

    def __init__(
        self, name: str, chores: Sequence[Callable[[], int]], idle_s: float
    ) -> None:
        self.name = name
        self.trouble: Exception | None = None
        self._chores = tuple(chores)
        self._idle_s = idle_s
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def go(self) -> bool:
        """Do each chore once; return whether there was anything to do.

        A chore that fails is logged and keeps no other from its turn.
        """
        found, trouble = 0, None
        for chore in self._chores:
            done = _do(chore)
            if isinstance(done, Exception):
                trouble = trouble or done
            else:
                found += done
        self.trouble = trouble
        return found > 0

    def start(self) -> None:
        """Go on and on in a thread."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End a pause: there is something to do."""
        self._wake.set()

    def stop(self, patience_s: float | None = None) -> None:
        """End the thread after the chore in progress; without one nothing happens.

        One that hangs is left to the process' end after `patience_s`.
        """
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(patience_s)
            self._thread = None

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.go():
                self._wake.wait(self._idle_s)
                self._wake.clear()


def _do(chore: Callable[[], int]) -> int | Exception:
    try:
        return chore()
    except (StoiloError, OSError) as error:  # a database that is away comes back
        log.warning("%s was cut short: %s", chore.__qualname__, error)
        return error
    except Exception as error:  # a bug in one chore must not end the others
        log.exception("%s was cut short", chore.__qualname__)
        return InternalError("STO-R034", f"a fault in {type(error)}")


class EventLoopThread:
    """One event loop in one daemon thread, started by the first who needs it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                thread.start()
                # Else the interpreter may end while the loop holds a lock of ours.
                atexit.register(self._stop)
            return self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it; interruption cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)


class Wakeup:
    """One thread waits; any thread and any signal handler may wake it or stop it.

    An `Event` will not do: its lock may be held by the very thread that a signal handler
    interrupts. `SimpleQueue.put` is reentrant.
    """

    def __init__(self) -> None:
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self.stopping = False

    def stop(self) -> None:
        """Let every wait end at once from now on."""
        self.stopping = True
        self._wakes.put(None)

    def wake(self) -> None:
        """End the present wait, or the next one."""
        self._wakes.put(None)

    def wait(self, seconds: float) -> None:
        """Wait that long, or until something wakes us."""
        if self.stopping:
            return
        try:
            self._wakes.get(timeout=seconds)
        except Empty:
            pass

    def forget(self) -> None:
        """Let nothing that happened before end the next wait."""
        while not self._wakes.empty():
            self._wakes.get()
