"""Answers that stay at the place: the server is the mailbox between one task and the next.

An order says that its answer stays, and a later one names it by that order's key. Here only
the name is known, at a server the digest of what a quorum agreed on, whose form the task's
validator has checked there. Where the place is this process, the form is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from stoilo.client.capture.arguments import StoredValue
from stoilo.learn.backends import Handle
from stoilo.learn.core.orders import Order, Reply, refuse_answer
from stoilo.learn.core.states import State, parse, render
from stoilo.learn.driver.acceptance import Expectation, check_reply


@dataclass(frozen=True, slots=True)
class _Left:
    """A handle as it is saved."""

    digest: str
    size: int
    value: Reply | None  # None where a server holds it

    @classmethod
    def of(cls, handle: Handle) -> _Left:
        """Return the row of a handle."""
        held = handle.stored
        value = Reply(**held) if isinstance(held, dict) else None
        return cls(handle.digest, handle.size, value)

    def open(self) -> Handle:
        """Return the handle."""
        digest, size = self.digest, self.size
        if self.value is None:
            return Handle(digest, size, StoredValue(digest, size))
        return Handle(digest, size, asdict(self.value))


class Mailbox:
    """The handles of such answers, by the keys of their orders; part of a checkpoint."""

    def __init__(self) -> None:
        self._left: dict[str, Handle] = {}

    def __len__(self) -> int:
        """Return how many answers are still to be named."""
        return len(self._left)

    def take(self, order: Order, value: object, expected: Expectation) -> Reply:
        """Keep the handle of an order's answer; return a reply without numbers.

        Raises:
            TrustError: ``STO-T010`` when the value is here and not as expected.
        """
        if not isinstance(value, Handle):
            raise refuse_answer("it did not stay at its place")
        if not isinstance(value.stored, StoredValue):
            check_reply(value.stored, expected)
        self._left[order.key] = value
        return Reply(expected.version, expected.samples, 0.0, {})

    def find(self, order: Order) -> dict[str, Handle]:
        """Return the handles that an order names, by argument of its kernel."""
        return {name: self._left[key] for name, key in order.inputs.items()}

    def forget(self, keys: Iterable[str]) -> None:
        """Let go of answers that no order will name any more."""
        for key in keys:
            self._left.pop(key, None)

    def save(self) -> State:
        """Return the handles; at a server the answers themselves stay there."""
        return render({key: _Left.of(handle) for key, handle in self._left.items()})

    def load(self, state: State) -> None:
        """Take up saved handles; raises ``STO-T012`` for what is none."""
        saved = parse(state, dict[str, _Left])
        self._left = {key: row.open() for key, row in saved.items()}
