"""What of one round is to be given out, is out, is answered: keys only.

A round ends when enough of its keys are answered. One that failed goes to the back of the
queue; a backup copy of one that is out goes out under the same key, and the first answer
counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoilo.learn.methods.states import read_int, read_keys, read_table
from stoilo.learn.work import Plain, State

__all__ = ["Ledger"]


class Ledger:
    """The keys of one round."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._waiting = list(keys)
        self._out: dict[str, int] = {}  # copies; the oldest first
        self._done: list[str] = []

    @property
    def size(self) -> int:
        """How many keys the round has."""
        return len(self._waiting) + len(self._out) + len(self._done)

    @property
    def answered(self) -> int:
        """How many keys are answered."""
        return len(self._done)

    @property
    def outstanding(self) -> tuple[str, ...]:
        """Keys that are out, the oldest first."""
        return tuple(self._out)

    def draw(self, room: int) -> list[str]:
        """Return at most `room` keys to give out now."""
        drawn, self._waiting = (
            self._waiting[: max(room, 0)],
            self._waiting[max(room, 0) :],
        )
        self._out |= dict.fromkeys(drawn, 1)
        return drawn

    def draw_backups(self, room: int, share: float, copies: int = 2) -> list[str]:
        """Return the oldest keys that are out, near the round's end, to give out again.

        Args:
            room: at most so many.
            share: only when not more than this share of the round is unanswered.
            copies: most copies of one key, the first included.
        """
        if self._waiting or len(self._out) > share * self.size:
            return []
        oldest = [key for key, out in self._out.items() if out < copies]
        drawn = oldest[: max(room, 0)]
        for key in drawn:
            self._out[key] += 1
        return drawn

    def draw_all(self, room: int, share: float) -> list[str]:
        """Return keys to give out now and, with a share, then backup copies."""
        keys = self.draw(room)
        return keys + self.draw_backups(room - len(keys), share) if share else keys

    def answer(self, key: str) -> bool:
        """Note an answer; return whether it is the first to a key of this round."""
        if self._out.pop(key, 0) == 0:
            return False
        self._done.append(key)
        return True

    def lose(self, key: str) -> None:
        """Note that one copy is lost; the key waits again when none is left."""
        if key not in self._out:
            return
        self._out[key] -= 1
        if self._out[key] == 0:
            del self._out[key]
            self._waiting.append(key)

    def save(self) -> State:
        """Return the round as plain data."""
        plain: dict[str, Plain] = {
            "waiting": list(self._waiting),
            "out": [*self._out],  # their order is their age: a table may lose it
            "copies": dict(self._out),
            "done": list(self._done),
        }
        return State({}, plain)

    @classmethod
    def load(cls, state: State) -> Ledger:
        """Return the round that `save` gave."""
        plain = state.plain
        ledger = cls(read_keys(plain, "waiting"))
        copies = read_table(plain, "copies")
        ledger._out = {key: read_int(copies, key) for key in read_keys(plain, "out")}
        ledger._done = read_keys(plain, "done")
        return ledger
