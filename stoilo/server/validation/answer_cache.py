"""Decoded answers that are soon asked for again, bounded in bytes as well as in number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stoilo.server.validation.answers import Answer


MOST: Final = 256
MOST_BYTES: Final = 64 * 1024 * 1024


class AnswerCache:
    """The newest answers; thread-safe. What is not here is read from its file again.

    Args:
        most_bytes: of the results' files together.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._answers: OrderedDict[str, tuple[int, Answer]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of the files whose answers are here."""
        return self._bytes

    def find(self, key: str) -> Answer | None:
        """Return an answer that is still here."""
        with self._lock:
            known = self._answers.get(key)
        return known[1] if known is not None else None

    def keep(self, key: str, size: int, answer: Answer) -> None:
        """Keep an answer from a file of `size` bytes, and let the oldest go."""
        with self._lock:
            before, _ = self._answers.pop(key, (0, None))
            self._answers[key] = size, answer
            self._bytes += size - before
            while len(self._answers) > MOST or self._bytes > self._most_bytes:
                _, (gone, _) = self._answers.popitem(last=False)
                self._bytes -= gone
