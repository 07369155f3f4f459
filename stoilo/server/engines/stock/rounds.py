"""Threads that do some things again and again, each thing whatever became of the others."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from stoilo.core.errors import StoiloError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Round"]

log = logging.getLogger(__name__)


class Round:
    """Some chores, one after the other, in one thread.

    Args:
        name: of the thread.
        chores: each says whether there was anything to do.
        idle_s: pause when there was nothing, s.
    """

    def __init__(
        self, name: str, chores: Sequence[Callable[[], bool]], idle_s: float
    ) -> None:
        self._name = name
        self._chores = tuple(chores)
        self._idle_s = idle_s
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def go(self) -> bool:
        """Do each chore once; returns whether there was anything to do.

        A chore that fails is logged, and keeps no other from its turn.
        """
        return sum(_do(chore) for chore in self._chores) > 0

    def start(self) -> None:
        """Go on and on in a thread."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End a pause: there is something to do."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after the chore in progress; without one nothing happens."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.go():
                self._wake.wait(self._idle_s)
                self._wake.clear()


def _do(chore: Callable[[], bool]) -> bool:
    try:
        return chore()
    except StoiloError as error:  # a database that is away comes back
        log.warning("%s was cut short: %s", chore.__qualname__, error)
    except Exception:  # a bug in one chore must not end the others
        log.exception("%s was cut short", chore.__qualname__)
    return False
