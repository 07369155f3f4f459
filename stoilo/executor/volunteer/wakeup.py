"""Waiting that ends early: when a run ended, or when the volunteer shall stop.

An `Event` will not do: its lock may be held by the very thread that a signal handler
interrupts. `SimpleQueue.put` is reentrant.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wakeup:
    """One thread waits; any thread and any signal handler may wake it or stop it."""

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
