"""What a coordinator knows of the links between nodes: rates, and whom not to believe.

A rate is measured at both ends of a transfer, and the smaller one counts. No claim can be
slower than the time that passed at the coordinator, or faster than any network. Two nodes
that contradict each other are in *dispute*, and a node in dispute with two others is named.
Rates, disputes and names are forgotten after some iterations (a version, a round), so a link
that was slow and a node that was at fault are tried again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Node: TypeAlias = str
Fault: TypeAlias = Literal["rates", "bytes", "stalled"]
MEMORY = 5  # iterations, as in the published program
FASTEST = 1e11  # bytes/s; a claim of more is cut to it
FAR = 4.0  # times that two honest clocks may differ
NOISE_S = 0.05  # transfers as short as this say nothing about honesty


class Term(NamedTuple):
    """Whose instructions these are: a later coordinator has a greater term."""

    number: int
    name: str = ""  # of the coordinator; two that start at once differ by it


def begin_term(seen: Iterable[Term], name: str) -> Term:
    """Return the term of a coordinator that starts, given what agents have seen."""
    return Term(max((one.number for one in seen), default=0) + 1, name)


class Obedience:
    """An agent's memory of the newest coordinator; older ones are refused."""

    def __init__(self) -> None:
        self.newest = Term(0)

    def accepts(self, term: Term) -> bool:
        """Say whether to follow an instruction of this term, and remember the term."""
        self.newest = max(self.newest, term)
        return term == self.newest


@dataclass(slots=True)
class _Link:
    """The last transfer over a link: what each end said of it, s."""

    transfer: object
    iteration: int
    size: int
    sent_s: float | None = None
    got_s: float | None = None


class LinkMatrix:
    """Measured rates and disputes; shared by all versions and rounds of a coordinator.

    Args:
        memory: how many iterations something is remembered; None: for ever.
    """

    def __init__(self, memory: int | None = MEMORY) -> None:
        self.memory, self.iteration = memory, 0
        self._links: dict[tuple[Node, Node], _Link] = {}
        self._disputes: dict[tuple[Fault, Node, Node], int] = {}
        self._named: dict[tuple[Fault, Node], int] = {}

    def advance(self, iteration: int) -> None:
        """Begin an iteration; versions that overlap do not turn the count back."""
        self.iteration = max(self.iteration, iteration)

    def _is_fresh(self, iteration: int) -> bool:
        return self.memory is None or self.iteration - iteration <= self.memory

    def hear(
        self,
        transfer: object,
        pair: tuple[Node, Node],
        size: int,
        *,
        sent_s: float | None = None,
        got_s: float | None = None,
        elapsed_s: float = math.inf,
    ) -> None:
        """Take what an end of a transfer says of it.

        Args:
            transfer: names it, so that both ends' words come together.
            pair: sender and receiver.
            size: bytes that went over, as the coordinator knows it.
            sent_s: s that it took by the sender's clock, until the receiver had it.
            got_s: the same by the receiver's clock.
            elapsed_s: s since the instruction, by the coordinator's own clock.
        """
        link = self._links.get(pair)
        if link is None or link.transfer != transfer:
            link = self._links[pair] = _Link(transfer, self.iteration, size)
        if sent_s is not None:
            link.sent_s = clamp(sent_s, size, elapsed_s)
        if got_s is not None:
            link.got_s = clamp(got_s, size, elapsed_s)
        if link.sent_s and link.got_s:
            low, high = sorted((link.sent_s, link.got_s))
            if high > NOISE_S and high > FAR * low:
                self.dispute(*pair, "rates")

    def rate(self, sender: Node, receiver: Node) -> float | None:
        """Return a link's rate, bytes/s; None when unknown or forgotten."""
        link = self._links.get((sender, receiver))
        if link is None or not self._is_fresh(link.iteration):
            return None
        words = ((sender, link.sent_s), (receiver, link.got_s))
        said = [(node, took) for node, took in words if took]
        # The slower of two words; that of a liar only where there is no other.
        trusted = [took for node, took in said if not self.is_named(node, "rates")]
        return link.size / max(trusted or [took for _, took in said])

    def dispute(self, one: Node, other: Node, fault: Fault) -> None:
        """Note that of these two one is at fault; name whom two others accuse."""
        for node, partner in ((one, other), (other, one)):
            self._disputes[fault, node, partner] = self.iteration
        for node in (one, other):
            against = [
                partner
                for (what, who, partner), since in self._disputes.items()
                if (what, who) == (fault, node)
                and self._is_fresh(since)
                and not self.is_named(partner, fault)
            ]
            if len(against) > 1:
                self._named[fault, node] = self.iteration

    def is_named(self, node: Node, *faults: Fault) -> bool:
        """Say whether a node is held to be at fault in one of these ways."""
        found = (self._named.get((fault, node)) for fault in faults)
        return any(since is not None and self._is_fresh(since) for since in found)

    def named(self) -> dict[Node, list[Fault]]:
        """Return who is held to be at fault, and of what."""
        found: dict[Node, list[Fault]] = {}
        for (fault, node), since in sorted(self._named.items()):
            if self._is_fresh(since):
                found.setdefault(node, []).append(fault)
        return found

    def disputes(self) -> list[tuple[Fault, Node, Node]]:
        """Return who contradicts whom, each pair once."""
        known = sorted(self._disputes.items())
        return [d for d, since in known if d[1] < d[2] and self._is_fresh(since)]

    def rates(self) -> dict[tuple[Node, Node], float]:
        """Return all rates that are not forgotten, bytes/s."""
        known = ((pair, self.rate(*pair)) for pair in sorted(self._links))
        return {pair: rate for pair, rate in known if rate is not None}


def clamp(claimed_s: float, size: int, elapsed_s: float) -> float:
    """Return a claim within what can be; nonsense counts as the coordinator's own time."""
    if not math.isfinite(claimed_s) or claimed_s < 0:
        claimed_s = elapsed_s if math.isfinite(elapsed_s) else 1.0
    return max(min(claimed_s, elapsed_s), size / FASTEST, 1e-9)
