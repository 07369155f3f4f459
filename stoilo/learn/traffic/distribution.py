"""One version on its way to all nodes: whoever has it asks whom to serve next (AL-CSP).

Nodes are the project's own, and may still lie, stall or vanish: whatever they do, the others
end with the version, and who was at fault is named by the links. Nothing here has a clock or
a socket; times are s of the caller's clock, which never goes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from stoilo.learn.traffic.links import Fault, LinkMatrix, Node, Term

P_MAX = 0.9  # share of choices by rate once all links are known; the rest explores
LEASE_S = 60.0
AT_FAULT: tuple[Fault, ...] = ("bytes", "stalled")  # whoever is does not send
TRIES = 5  # transfers to a node that failed, after which it goes without


@dataclass(frozen=True, slots=True)
class Transfer:
    """An instruction: send this version to that node. Agents give it back in reports."""

    term: Term
    version: str  # its digest
    number: int
    sender: Node
    receiver: Node


@dataclass(frozen=True, slots=True)
class Give:
    """Send now; unless the receiver has reported until `until`, it is somebody else's."""

    transfer: Transfer
    until: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to send now, but somebody may still need it: ask again in a while."""


@dataclass(frozen=True, slots=True)
class Done:
    """Everybody has it, or you are not to send it."""


Reply: TypeAlias = Give | Wait | Done


@dataclass(frozen=True, slots=True)
class Sent:
    """A sender's word on its last transfer: the receiver had it after so many s."""

    transfer: Transfer
    seconds: float


class Distribution:
    """Who has one version, who is getting it from whom, and who is next.

    Args:
        version: its digest.
        size: bytes.
        source: who has it at first.
        nodes: who is to have it, the source among them or not.
        links: rates, shared with other versions and rounds.
        random: of the choices.
        term: the coordinator's.
        iteration: the version's number, by which rates grow old.
        p_max: largest share of choices by rate.
        lease_s: how long a transfer may take.
    """

    abreast = 1  # transfers that a sender has at a time

    def __init__(
        self,
        version: str,
        size: int,
        source: Node,
        nodes: Iterable[Node],
        links: LinkMatrix,
        random: Random,
        *,
        term: Term = Term(1),  # noqa: B008 - immutable
        iteration: int = 0,
        p_max: float = P_MAX,
        lease_s: float = LEASE_S,
    ) -> None:
        self.version, self.size, self.links, self.term = version, size, links, term
        self.nodes = list(dict.fromkeys([source, *nodes]))
        self.holders: dict[Node, float] = {source: 0.0}  # since when
        self.open: dict[Transfer, float] = {}  # since when
        self.out: set[Node] = set()  # gone, or given up
        self._random, self._p_max, self._lease_s = random, p_max, lease_s
        self._numbers = itertools.count()
        self._sent: set[Transfer] = set()  # of the open ones: their sender is free
        self._took: dict[Transfer, float] = {}  # ended ones, s
        self._failed: dict[Node, list[Node]] = {}  # receiver -> senders that failed
        links.advance(iteration)

    @property
    def done(self) -> bool:
        """Whether there is nobody left who should get it."""
        return all(n in self.holders or n in self.out for n in self.nodes)

    def ask(self, node: Node, now: float, sent: Sent | None = None) -> Reply:
        """Say what a node that has the version is to do; the same when asked again.

        Args:
            node: who asks.
            now: s.
            sent: its last transfer, the first time it asks after it.
        """
        if sent is not None and sent.transfer.sender == node:
            self._hear_sender(sent, now)
        if self.done or node not in self._able():
            return Done() if self.done or node in self.holders else Wait()
        own = [t for t in self.open if t.sender == node and t not in self._sent]
        if len(own) < self.abreast:
            receiver = self._choose(node)
            if receiver is not None:
                number = next(self._numbers)
                own = [Transfer(self.term, self.version, number, node, receiver)]
                self.open[own[0]] = now
        return Give(own[-1], self.open[own[-1]] + self._lease_s) if own else Wait()

    def _hear_sender(self, sent: Sent, now: float) -> None:
        transfer = sent.transfer
        elapsed_s = self._took.get(transfer, now - self.open.get(transfer, now)) or None
        self._hear(transfer, elapsed_s, sent_s=sent.seconds)
        if transfer in self.open:
            self._sent.add(transfer)

    def _hear(self, transfer: Transfer, elapsed_s: float | None, **said: float) -> None:
        if transfer.version == self.version and elapsed_s is not None:
            pair = (transfer.sender, transfer.receiver)
            self.links.hear(transfer, pair, self.size, elapsed_s=elapsed_s, **said)

    def _able(self) -> list[Node]:
        """Return who is to send; those at fault only where all who could are."""
        honest = [n for n in self.holders if not self.links.is_named(n, *AT_FAULT)]
        return honest or list(self.holders)

    def _choose(self, sender: Node) -> Node | None:
        """Return the next receiver: the fastest known, or now and then an unknown one."""
        left = self._candidates(sender)
        rates = {node: self.links.rate(sender, node) for node in left}
        known = {node: rate for node, rate in rates.items() if rate is not None}
        if not left:
            return None
        if self._random.random() < min(len(known) / len(left), self._p_max):
            return max(known, key=known.__getitem__)
        return self._random.choice([n for n in left if n not in known] or left)

    def _candidates(self, sender: Node) -> list[Node]:
        """Return whom a node may serve: where it failed, only if nobody else could."""
        taken = {*self.holders, *self.out, *(one.receiver for one in self.open)}
        free = [node for node in self.nodes if node not in taken]
        failed = {node: set(self._failed.get(node, ())) for node in free}
        new = [node for node in free if sender not in failed[node]]
        return new or [n for n in free if failed[n].issuperset(self._able())]

    def received(
        self, transfer: Transfer, seconds: float, digest: str, now: float
    ) -> None:
        """Take a receiver's word: it has so many bytes of that digest after so many s.

        The caller knows that it is the receiver who says so. A late word counts as well:
        who has the version needs no other sender. Reports of another version do not.
        """
        if transfer.version != self.version:
            return
        begun = self.open.get(transfer)
        if digest != self.version:
            self.lost(transfer, now, fault=True, wrong=True)
            return
        for one in [t for t in self.open if t.receiver == transfer.receiver]:
            self._end(one, now)
        elapsed_s = self._took.get(transfer) if begun is not None else None
        self._hear(transfer, elapsed_s, got_s=seconds)
        self.restore(transfer.receiver, now, has=True)

    def _end(self, transfer: Transfer, now: float) -> None:
        self._took[transfer] = now - self.open.pop(transfer)
        self._sent.discard(transfer)

    def lost(
        self, transfer: Transfer, now: float, *, fault: bool = True, wrong: bool = False
    ) -> None:
        """End a transfer that came to nothing; the receiver is free for others.

        Args:
            transfer: it.
            now: s.
            fault: one of the two ends is to blame; not when the connection broke.
            wrong: the bytes were, rather than the time.
        """
        if transfer not in self.open:
            return
        self._end(transfer, now)
        del self._took[transfer]  # its sender's word does not count
        sender, receiver = transfer.sender, transfer.receiver
        # As slow as can be, or the fastest known link would be tried again and again.
        self._hear(transfer, self._lease_s, sent_s=self._lease_s, got_s=self._lease_s)
        failed = self._failed.setdefault(receiver, [])
        failed.append(sender)
        if fault:
            self.links.dispute(sender, receiver, "bytes" if wrong else "stalled")
        is_named = self.links.is_named(receiver, *AT_FAULT)
        if len(failed) >= TRIES or (is_named and len(set(failed)) > 1):
            self.out.add(receiver)

    def expire(self, now: float) -> list[Transfer]:
        """End and return the transfers whose lease is over; agents should drop them."""
        late = [t for t, since in self.open.items() if now - since >= self._lease_s]
        for transfer in late:
            self.lost(transfer, now)
        return late

    def gone(self, node: Node, now: float) -> None:
        """Go on without a node that is not there any more; its transfers are lost."""
        for transfer in [t for t in self.open if node in (t.sender, t.receiver)]:
            self._end(transfer, now)
        self.holders.pop(node, None)
        self.out.add(node)

    def restore(self, node: Node, now: float, *, has: bool) -> None:
        """Take what a node says it has: new, back, or after the coordinator's own restart.

        Args:
            node: it.
            now: s.
            has: whether it has the version, by its own check of the digest.
        """
        if node not in self.nodes:
            self.nodes.append(node)
        self.out.discard(node)
        if has:
            self.holders.setdefault(node, now)
        else:
            self.holders.pop(node, None)
