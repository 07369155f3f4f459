"""What is known of one segment of a round: parts of its sum, and who holds them.

The ledger is kept in sets of contribution ids. A node has its own contribution and the sum
that it has made so far, and keeps both until the root has acknowledged the round. Which of
all these *parts* are on their way to the root is settled anew after each event: the root's
first, then the largest ones that have nothing in common. A contribution whose node died when
only some segments of it had gone on is *torn*: no part with it goes on, whole or not at all.
So a regular step, a death between receiving and forwarding, a return, and a restarted
coordinator are one case. A node sends exactly the part that it is asked for and adds only
what it has not: whatever a coordinator believes, no contribution is counted twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from stoilo.learn.traffic.links import Node, Term

Ids: TypeAlias = frozenset[str]  # of contributions; a node's own bears its name
NOTHING: Ids = frozenset()


@dataclass(frozen=True, slots=True)
class Order:
    """An instruction to a pair: this part goes from one to the other, who adds it."""

    term: Term
    round: str
    number: int
    sender: Node
    receiver: Node
    part: Ids
    afresh: bool = False  # the receiver begins again from its own contribution
    segment: int = 0


@dataclass(slots=True)
class Ledger:
    """One segment: what living nodes have of it, and which of that goes on.

    Attributes:
        root: where it goes.
        parts: of living nodes that are ready.
        active: the part of each that is to go on.
        queue: who waits, longest first; the root is none of them.
        busy: who sends or receives it.
        torn: contributions that are lost in another segment.
    """

    root: Node
    parts: dict[Node, list[Ids]] = field(default_factory=dict)
    active: dict[Node, Ids] = field(default_factory=dict)
    queue: list[Node] = field(default_factory=list)
    busy: set[Node] = field(default_factory=set)
    torn: Ids = NOTHING

    @property
    def arrived(self) -> Ids:
        """Which contributions the root has."""
        return max(self._usable(self.root), key=len, default=NOTHING)

    @property
    def held(self) -> Ids:
        """Which contributions somebody who is there has."""
        return self.held_without(NOTHING)

    def held_without(self, torn: Ids) -> Ids:
        """Return the same of parts that have nothing of `torn`."""
        parts = itertools.chain(*self.parts.values())
        return NOTHING.union(*(part for part in parts if not part & torn))

    def _usable(self, node: Node) -> list[Ids]:
        return [part for part in self.parts.get(node, []) if not part & self.torn]

    def settle(self, begun: Sequence[Order]) -> None:
        """Choose the parts that go on beside those on their way; queue whose they are."""
        self.busy = {node for o in begun for node in (o.sender, o.receiver)}
        taken = set(self.arrived).union(*(o.part for o in begun))
        for node in self.busy - {self.root}:
            taken.update(self.active.get(node, NOTHING))
        kept = {
            n: p for n, p in self.active.items() if n in self.busy and n in self.parts
        }
        free = [n for n in self.parts if n not in self.busy and n != self.root]
        choices = [(part, node) for node in free for part in self._usable(node)]
        for part, node in sorted(choices, key=lambda one: -len(one[0])):
            if node not in kept and not part & taken:
                kept[node] = part
                taken |= part
        self.active = kept
        waiting = dict.fromkeys(n for n in self.queue if n in kept)
        waiting |= dict.fromkeys(n for n in self.parts if n in kept)
        self.queue = [n for n in waiting if n not in self.busy]

    def is_useless(self, node: Node) -> bool:
        """Say whether others have some of the sum that a node has made, or it is torn."""
        made = self.parts[node][0] if self.parts[node] else NOTHING
        goes_on = node == self.root or self.active.get(node, NOTHING) == made
        return not goes_on or bool(made & self.torn)
