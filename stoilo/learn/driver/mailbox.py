"""Answers that stay at the place: the server is the mailbox between one task and the next.

A later order names such an answer by its order's key. Only its name is known here: at a server
the digest of what a quorum agreed on, whose form the task's validator has checked there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from stoilo.client.capture.arguments import StoredValue
from stoilo.learn.backends import Handle
from stoilo.learn.core.orders import Order, Reply, refuse_answer
from stoilo.learn.core.states import State, parse, render
from stoilo.learn.driver.acceptance import Expectation, check_reply

_Row = tuple[str, int, Reply | None]  # digest, size, and the answer where it is here


class Mailbox:
    """The handles of answers by the keys of their orders; part of a run's checkpoint."""

    def __init__(self) -> None:
        self._left: dict[str, Handle] = {}

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
        return Reply(expected.version, order.samples, 0.0, {})

    def find(self, order: Order) -> dict[str, Handle]:
        """Return the handles that an order names, by argument of its kernel."""
        return {name: self._left[key] for name, key in order.inputs.items()}

    def forget(self, keys: Iterable[str]) -> None:
        """Let go of answers that no order will name any more."""
        for key in keys:
            self._left.pop(key, None)

    def save(self) -> State:
        """Return the handles; at a server the answers themselves stay there."""
        held = {key: one.stored for key, one in self._left.items()}
        here = {k: Reply(**v) for k, v in held.items() if isinstance(v, dict)}
        rows = {k: (h.digest, h.size, here.get(k)) for k, h in self._left.items()}
        return render(rows)

    def load(self, state: State) -> None:
        """Take up saved handles; raises ``STO-T012`` for what is none."""
        for key, (digest, size, here) in parse(state, dict[str, _Row]).items():
            stored = StoredValue(digest, size) if here is None else asdict(here)
            self._left[key] = Handle(digest, size, stored)
