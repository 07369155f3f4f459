"""What a record says, arranged for people: nodes, trees as they grew, their times. Pure.

Of a version, a node hangs from whom it had it from; of a round, from whom its part's first
segment went to last, for what was lost on the way was sent again; other segments have trees
of their own. What began before the events do is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stoilo.learn.traffic.links import Fault, Node
from stoilo.learn.traffic.record import Event, Record

FAULTS = ("failed", "left", "named")  # events that an operator has to look at


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, as far as the record's events go back."""

    name: Node
    place: str  # host:port; empty: gone
    versions: list[int]
    got: int  # bytes
    gave: int  # bytes
    faults: list[Fault]


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a tree and the transfer by which it hangs there."""

    node: Node
    partner: Node  # whom it hangs from; empty: it is a top
    depth: int
    at: float  # s from the tree's beginning to the transfer's end
    seconds: float  # that the transfer took
    rate: float  # bytes/s; 0: not known


@dataclass(frozen=True, slots=True)
class Tree:
    """A version on its way down, or a round's parts on their way up."""

    what: str  # version, round
    number: int
    root: Node
    begun: float  # s since 1970
    mean_s: float  # of the receipts; 0: there was none
    last_s: float  # until the last one, of any segment
    steps: list[Step]  # each before those below it; the root is the first

    @property
    def name(self) -> str:
        """What it is called, ``version 17``."""
        return f"{self.what} {self.number}"


def list_nodes(record: Record) -> list[NodeRow]:
    """Return the nodes that are there, or are held at fault, by name."""
    sent = [event for event in record.events if event.what == "sent"]
    return [
        NodeRow(
            name,
            record.nodes.get(name, ""),
            [number for number, who in sorted(record.versions.items()) if name in who],
            sum(event.size for event in sent if event.node == name),
            sum(event.size for event in sent if event.sender == name),
            record.named.get(name, []),
        )
        for name in sorted({*record.nodes, *record.named})
    ]


def list_trees(events: Sequence[Event]) -> list[Tree]:
    """Return what spread and was added up, in order of its beginning."""
    found: dict[tuple[bool, int], list[Event]] = {}
    for event in events:
        is_sum = bool(event.ids) or event.what == "opened"
        key = is_sum, event.number
        if event.what in {"version", "opened"}:
            found.pop(key, None)  # one that begins again counts as the newest
            found[key] = [event]
        elif event.what == "sent" and key in found:
            found[key].append(event)
    return [_grow(*own) for own in found.values()]


def _grow(begun: Event, *sent: Event) -> Tree:
    is_sum, root = begun.what == "opened", begun.node
    first = [event for event in sent if not event.segment]
    hung = _hang(root, first[::-1] if is_sum else first, is_sum=is_sum)
    below: dict[Node, list[Node]] = {root: []}
    for node, (partner, _) in hung.items():
        below.setdefault(partner, []).append(node)
    tops = [node for node in below if node not in hung]
    at = {node: event.at - begun.at for node, (_, event) in hung.items()}
    for nodes in below.values():
        nodes.sort(key=at.__getitem__)
    steps = [step for top in tops for step in _walk(top, 0, below, hung, begun.at)]
    what, mean_s = "round" if is_sum else "version", fmean(at.values() or [0.0])
    others = [event.at - begun.at for event in sent if event.segment]
    last_s = max((*at.values(), *others), default=0.0)
    return Tree(what, begun.number, root, begun.at, mean_s, last_s, steps)


_Hung = Mapping[
    Node, tuple[Node, Event]
]  # node → whom it hangs from, by which transfer


def _hang(root: Node, sent: Sequence[Event], *, is_sum: bool) -> _Hung:
    """Take the first transfer of each node that makes no circle."""
    hung: dict[Node, tuple[Node, Event]] = {}
    for event in sent:
        node, partner = event.node, event.sender
        if is_sum:
            node, partner = partner, node
        top = partner
        while top in hung:
            top = hung[top][0]
        if node not in {root, top, *hung}:
            hung[node] = partner, event
    return hung


def _walk(
    node: Node, depth: int, below: Mapping[Node, list[Node]], hung: _Hung, since: float
) -> Iterator[Step]:
    partner, at, seconds, rate = "", 0.0, 0.0, 0.0
    if node in hung:
        partner, event = hung[node]
        at, seconds = event.at - since, event.seconds
        rate = event.size / seconds if seconds else 0.0
    yield Step(node, partner, depth, at, seconds, rate)
    for one in below.get(node, []):
        yield from _walk(one, depth + 1, below, hung, since)
