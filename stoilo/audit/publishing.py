"""The thread that publishes: it keeps the pace, remembers the newest, lets callers wait.

What one publication consists of is `stoilo.audit.publisher`'s. A failed one is tried
again, unless tiles, databases and memory disagree: then the log stops for good.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from stoilo.audit.pacing import SequencerSettings, harmless_refusal
from stoilo.audit.tiles import TILE_WIDTH
from stoilo.core.errors import InternalError, StoiloError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.audit.headdb import TreeHead
    from stoilo.audit.publisher import Published, Publisher

__all__ = ["PublicationLoop"]

# What publishing cannot recover from: tiles, databases and memory disagree, or two write.
_DISTRUST = frozenset({"STO-L047", "STO-L049", "STO-L081"})


class PublicationLoop:
    """Publishes the newest head that it was offered, again and again.

    Args:
        publisher: does one publication.
        settings: pace.
        head: the newest acknowledged head.
        published: what readers see already, None before the first.
        give_up: called with what makes going on impossible.
    """

    def __init__(
        self,
        publisher: Publisher,
        settings: SequencerSettings,
        head: TreeHead,
        published: Published | None,
        give_up: Callable[[Exception], None],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._head = head
        self._give_up = give_up
        self.newest = published
        self.error: StoiloError | None = None
        self._news = threading.Condition()  # the loop waits here for heads
        self._progress = threading.Condition()  # callers wait here for checkpoints
        self._awaited = 0  # leaves that somebody waits to see published
        self._leaving = False
        self._aborted = False
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name="log-publisher", daemon=True
        )

    @property
    def size(self) -> int:
        """Leaves under the published checkpoint."""
        return self.newest.checkpoint.size if self.newest else 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be published."""
        return self._aborted or self._ended

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, head: TreeHead) -> None:
        """Name a newer head, durable in both databases."""
        with self._news:
            self._head = head
            self._news.notify()

    def wait(self, index: int, timeout: float | None) -> bool:
        """Wait until leaf `index` is published; False after `timeout` s or at the end."""
        with self._news:
            if self._awaited <= index:
                self._awaited = index + 1
                self._news.notify()
        with self._progress:
            self._progress.wait_for(lambda: index < self.size or self.is_over, timeout)
            return index < self.size

    def leave(self, timeout: float) -> None:
        """Publish what was offered, once, then end; waits at most `timeout` s."""
        self._end()
        self._thread.join(timeout)

    def abort(self) -> None:
        """Publish nothing more."""
        self._aborted = True
        self._end()

    def _end(self) -> None:
        with self._news:
            self._leaving = True
            self._news.notify()
        with self._progress:
            self._progress.notify_all()

    def _run(self) -> None:
        try:
            while self._wait_for_head():
                began, before = time.monotonic(), self.size
                done = self._publish(self._head)
                if not done and self._leaving:
                    return
                self._rest(began, self._pause(before, done=done))
        finally:
            with self._progress:
                self._ended = True
                self._progress.notify_all()

    def _wait_for_head(self) -> bool:
        """Wait for leaves to publish; False when there is no more to do."""
        with self._news:
            self._news.wait_for(lambda: self._head.size > self.size or self._leaving)
            return not self._aborted and self._head.size > self.size

    def _pause(self, before: int, *, done: bool) -> float:
        if not done:
            return self._settings.retry_s
        if self.size - before >= TILE_WIDTH:
            return self._settings.busy_interval_s
        return self._settings.publish_interval_s

    def _rest(self, began: float, pause: float) -> None:
        """Keep the pace; the longer one only while nobody waits for leaves of now."""
        least = min(pause, self._settings.publish_interval_s)
        with self._news:
            self._wait_until(began + least, lambda: self._leaving)
            self._wait_until(began + pause, lambda: self._leaving or self._is_awaited)

    @property
    def _is_awaited(self) -> bool:
        return self.error is None and self.size < self._awaited <= self._head.size

    def _wait_until(self, end: float, over: Callable[[], bool]) -> None:
        left = end - time.monotonic()
        if left > 0:
            self._news.wait_for(over, left)

    def _publish(self, head: TreeHead) -> bool:
        """Publish one head; True when readers can see it."""
        try:
            published = self._publisher.publish(head)
        except StoiloError as error:
            self.error = error
            if error.code in _DISTRUST:
                self._give_up(error)
            return False
        except Exception as error:  # noqa: BLE001 - the publisher thread's edge
            self.error = InternalError("STO-L058", f"publishing failed: {error}")
            if harmless_refusal(error) is None:
                self._give_up(error)
            return False
        with self._progress:
            self.newest, self.error = published, None
            self._progress.notify_all()
        return self._remember(published)

    def _remember(self, published: Published) -> bool:
        """Do what need not be waited for: record the checkpoint, drop partial tiles."""
        try:
            self._publisher.remember(published)
        except Exception as error:  # noqa: BLE001 - the publisher thread's edge
            if harmless_refusal(error) is None:
                self._give_up(error)
            return False
        return True
