"""The coordinator: it says who fetches what from whom, and keeps the record of that.

DIR/connection.json   0600: opens it for an operator (`stoilo learn traffic`)
DIR/nodes/NAME.json   0600: for the node of that name, and for no other
DIR/record.jsonl      what happened, one `record.Event` a line; the older half in record.1.jsonl
DIR/tls/              certificate of the port

It never touches a model's bytes, and all that it knows of nodes is what they tell it: killed
and started again, or beside another one, it learns from each node what is held there. Orders
carry a term, nodes obey the latest, and a node that a later coordinator leads is let alone. Who
speaks for a node has its token, so whatever is said has a name.
"""

from __future__ import annotations

import itertools
import queue
import random
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoilo.core.background import Repeater
from stoilo.core.errors import TrustError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import TokenService
from stoilo.learn.traffic import distribution as d
from stoilo.learn.traffic import ledger
from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.aggregation import Aggregation
from stoilo.learn.traffic.holdings import KEPT_ROUNDS, KEPT_VERSIONS, Kept
from stoilo.learn.traffic.links import LinkMatrix, begin_term, clamp
from stoilo.learn.traffic.reach import Reach
from stoilo.learn.traffic.record import SHOWN, Log, Record
from stoilo.learn.traffic.under_way import Node, Transfer, UnderWay, lease_s

_TICK_S = 0.2
_KEPT_ORDERS = 4096


class Coordinator(TokenService):
    """The coordinator at a port.

    Args:
        data: its folder.
        address: where it listens, ``host:port``.
        nodes: names of those who may report.
        names: more of the machine's, for TLS.
        distribution: how a version spreads; fixed trees are there to compare with.
        aggregation: how a round is added up.
        kept: how many of the newest versions are spread.
    """

    def __init__(
        self,
        data: Path,
        address: str,
        nodes: Sequence[str],
        names: tuple[str, ...] = (),
        *,
        distribution: Callable[..., d.Distribution] = d.Distribution,
        aggregation: Callable[..., Aggregation] = Aggregation,
        kept: int = KEPT_VERSIONS,
    ) -> None:
        super().__init__(data, address, names)
        self.place = self.admit_one()
        (data / "nodes").mkdir(mode=0o700, exist_ok=True)
        for name in nodes:
            self.admit_again(name, data / "nodes" / f"{name}.json")
        self._distribution, self._aggregation = distribution, aggregation
        self._name, self._links = secrets.token_hex(8), LinkMatrix()
        self._reach, self._kept = Reach(), Kept(kept, w.MOST_ITEM * w.MOST_KEPT)
        self.term = begin_term([], self._name)
        self._lock, self._nodes = threading.RLock(), dict[str, Node]()
        self._versions = dict[int, d.Distribution]()  # each called by its item's key
        self._items, self._rounds = dict[int, w.Item](), dict[int, Aggregation]()
        # round → node and segment → its parts: the last that it made first, its own behind
        self._parts = dict[int, dict[tuple[str, int], list[w.Item]]]()
        self._orders = dict[str, UnderWay]()  # by what nodes call it
        self._given, self._serial = set[Transfer](), itertools.count()
        self._begun = Counter[str]()  # versions and rounds, by which rates grow old
        self._named, self.log = self._links.named(), Log(data / "record.jsonl")
        Repeater("leases", [self._expire], _TICK_S).start()

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Hear a node, give it orders, or show an operator the record or who has what."""
        stream.settimeout(w.SILENCE_S)
        kinds = w.Hello | w.Listen if owner else w.Show | w.Locate
        match w.receive(stream, kinds):
            case w.Show(events):
                p.send_frame(stream, self.show(events))
            case w.Locate():
                p.send_frame(stream, self.locate())
            case w.Hello() as hello:
                self._hear(stream, owner, hello)
            case w.Listen():
                self._speak(stream, owner)

    def show(self, events: int) -> Record:
        """Return what an operator sees, with so many of the newest events."""
        with self._lock:
            versions, rounds = self._versions, self._rounds
            return Record(
                self.term,
                {one.name: one.place.shard for one in self._nodes.values()},
                [(*pair, rate) for pair, rate in self._links.rates().items()],
                self._links.named(),
                {number: [*one.holders] for number, one in versions.items()},
                {number: sorted(one.arrived) for number, one in rounds.items()},
                [*self.log.newest][-min(events, SHOWN) :] if events > 0 else [],
                self._links.disputes(),
                sum(len(one.open) for one in versions.values())
                + sum(len(one.open) for one in rounds.values()),
            )

    def locate(self) -> w.Located:
        """Return where volunteers get which version."""
        with self._lock:
            urls = {one.name: one.url for one in self._nodes.values()}
            files = [one for one in self._items.values() if not one.training]
            held = [(one.digest, self._versions[one.number]) for one in files]
            return self._reach.locate(urls, held, self._links.named())

    def _hear(self, stream: socket.socket, name: str, hello: w.Hello) -> None:
        """Take a node in, and what it reports until it is silent."""
        node = Node(name, hello.place, hello.url[: w.MOST_TEXT])
        with self._lock:
            if hello.term > self.term:
                if hello.is_led:  # stand by: the later one is well
                    raise TrustError("STO-T038", "the node has a later coordinator")
                self.term = begin_term([hello.term], self._name)
            self._join(node, hello)
        why = "hung up"
        try:
            p.send_frame(stream, w.DONE)
            while self._nodes.get(name) is node:
                self._take(node, w.receive(stream, w.Report))
                p.send_frame(stream, w.DONE)
        except TimeoutError:
            why = "was silent"
        finally:
            with self._lock:
                if self._nodes.get(name) is node:
                    self._leave(node, why)

    def _speak(self, stream: socket.socket, name: str) -> None:
        """Give a node its orders for as long as it is the same."""
        node = self._nodes.get(name)
        while node and self._nodes.get(name) is node:
            order: w.Order = w.Lead(self.term)
            with suppress(queue.Empty):
                order = node.orders.get(timeout=w.BEAT_S)
            p.send_frame(stream, order)

    def _join(self, node: Node, hello: w.Hello) -> None:
        if (before := self._nodes.get(node.name)) is not None:
            self._leave(before, "came again")
        self._nodes[node.name] = node
        self.log.note("joined", node.name)
        node.orders.put(w.Lead(self.term))
        for one in self._versions.values():
            one.restore(node.name, time.monotonic(), has=False)
        # The largest sum last: that is the one to go on from.
        for item in sorted(hello.items, key=lambda one: len(one.ids)):
            self._hold(node.name, item)
        for number, ids in hello.rounds.items():
            self._open_round(node.name, number, ids)
        self._give()

    def _leave(self, node: Node, why: str) -> None:
        del self._nodes[node.name]
        self.log.note("left", node.name, why=why)
        for one in self._versions.values():
            one.gone(node.name, time.monotonic())
        for parts in self._parts.values():
            for key in [key for key in parts if key[0] == node.name]:
                del parts[key]
        for summed in self._rounds.values():
            self._send_sums(summed.gone(node.name, time.monotonic()))
        self._give()

    def _take(self, node: Node, report: w.Report) -> None:
        """Do what follows from a report."""
        with self._lock:
            if self._nodes.get(node.name) is not node:
                return
            match report:
                case w.Has():
                    self._received(node.name, report)
                case w.Sent():
                    self._sent(node.name, report)
                case w.Failed():
                    self._failed(node.name, report)
                case w.Forgot(item):
                    if self._items.get(item.number) == item:
                        self._versions[item.number].gone(node.name, time.monotonic())
                case w.Reached():
                    self._reach.hear(node.name, report)
                case w.Opened(number, ids):
                    self._open_round(node.name, number, ids)
                case w.Beat(term) if term > self.term:
                    self._leave(node, "has a later coordinator")
            self._give()

    def _received(self, name: str, report: w.Has) -> None:
        order, item = self._orders.get(report.transfer), report.item
        if order is None or not order.fits(name, item):
            self._hold(name, item)
            return
        now = time.monotonic()
        seconds = clamp(report.seconds or -1, item.size, now - order.since)  # 0: had it
        self._note("sent", order, seconds=seconds)
        parts = self._keep_part(name, item) if item.ids else []
        match self._find(item), order.transfer:
            case d.Distribution() as one, d.Transfer() as transfer:
                one.received(transfer, seconds, item.key, now)
            case Aggregation() as one, ledger.Order() as transfer:
                self._send_sums(one.finished(transfer, seconds, parts, now))

    def _find(self, item: w.Item) -> d.Distribution | Aggregation | None:
        """Return what an item is part of, as long as that is going on."""
        return (self._rounds if item.ids else self._versions).get(item.number)

    def _hold(self, name: str, item: w.Item) -> None:
        """Note what a node has without an order of ours."""
        now = time.monotonic()
        if item.ids:
            parts = self._keep_part(name, item)
            if (summed := self._rounds.get(item.number)) is not None:
                summed.size, summed.lease_s = item.size, lease_s(item.size)
                self._send_sums(summed.ready(name, parts, now, item.segment))
            return
        if item not in self._kept.choose([*self._items.values(), item]):
            return
        one = self._versions.get(item.number) or self._begin(name, item)
        if self._items[item.number] != item:
            self.log.note("failed", name, item.number, why="has another", cause="other")
            return
        begun = [(t, since) for t, since in one.open.items() if t.receiver == name]
        for transfer, since in begun:  # ordered by somebody else as well
            one.received(transfer, now - since, item.key, now)
        one.restore(name, now, has=True)

    def _begin(self, name: str, item: w.Item) -> d.Distribution:
        """Return a version that begins at a node, in the place of the oldest."""
        self._begun["version"] += 1
        self._reach.advance(self._begun["version"])
        self.log.note("version", name, item.number, size=item.size)
        self._items[item.number] = item
        one = self._versions[item.number] = self._distribution(
            *(item.key, item.size, name, list(self._nodes), self._links),
            random.SystemRandom(),
            term=self.term,
            iteration=self._begun["version"],
            lease_s=lease_s(item.size),
        )
        kept = self._kept.choose(self._items.values())
        for old in [number for number, it in self._items.items() if it not in kept]:
            del self._versions[old], self._items[old]
        return one

    def _keep_part(self, name: str, item: w.Item) -> list[ledger.Ids]:
        """Note a part of a round, and return what its node can send."""
        here = self._parts.setdefault(item.number, {})
        held = here.setdefault((name, item.segment), [])
        known = [item, *(one for one in held if one != item)]
        own = [one for one in known if one.ids == (name,)]
        held[:] = [one for one in known if one not in own][:1] + own[:1]
        for old in sorted(self._parts)[:-KEPT_ROUNDS]:
            del self._parts[old]
        return [frozenset(one.ids) for one in held]

    def _open_round(self, root: str, number: int, ids: Sequence[str]) -> None:
        """Begin to add a round up at a node, or end it where nothing is waited for."""
        one = self._rounds.get(number)
        if one is not None and one.root != root and one.root in self._nodes:
            return  # it is another's to open and to close
        if not ids:
            self._close_round(number)
        elif one is None or one.root != root:
            self._begun["round"] += 1
            self.log.note("opened", root, number)
            here = self._parts.setdefault(number, {})
            size = max((i.size for held in here.values() for i in held), default=0)
            one = self._rounds[number] = self._aggregation(
                *(str(number), size, root, ids, self._links),
                term=self.term,
                iteration=self._begun["round"],
                lease_s=lease_s(size),
            )
            # The root last: it takes what is left over when all others are paired.
            for name, segment in {**here, (root, 0): ()}:
                parts = [frozenset(i.ids) for i in here.get((name, segment), [])]
                self._send_sums(one.ready(name, parts, time.monotonic(), segment))
            for old in sorted(self._rounds)[:-KEPT_ROUNDS]:
                self._close_round(old)

    def _close_round(self, number: int) -> None:
        one = self._rounds.pop(number, None)
        self._parts.pop(number, None)
        if one is not None:
            self.log.note("collected", one.root, number)
            for node in self._nodes.values():
                node.orders.put(w.Drop(self.term, number))

    def _sent(self, name: str, report: w.Sent) -> None:
        """Let the sender's own measure count, too."""
        order = self._orders.get(report.transfer)
        if order is None or order.transfer.sender != name:
            return
        match self._find(order.item), order.transfer:
            case d.Distribution() as one, d.Transfer() as transfer:
                one.ask(name, time.monotonic(), d.Sent(transfer, report.seconds))
            case Aggregation() as one, ledger.Order() as transfer:
                one.sent(transfer, report.seconds)

    def _failed(self, name: str, report: w.Failed) -> None:
        order, now = self._orders.get(report.transfer), time.monotonic()
        fault = report.fault
        if order is None or order.transfer.receiver != name:
            return
        self._note("failed", order, why=report.why, cause=fault or "gone")
        match self._find(order.item), order.transfer:
            case d.Distribution() as one, d.Transfer() as transfer:
                is_theirs = fault in {"bytes", "stalled"}
                one.lost(transfer, now, fault=is_theirs, wrong=fault == "bytes")
            case Aggregation() as one, ledger.Order() as transfer:
                if fault == "bytes":
                    self._links.dispute(transfer.sender, name, "bytes")
                parts = one.ledgers[transfer.segment].parts.get(name, [])
                if fault == "refused":
                    again = one.refused(name, transfer, parts, now)
                else:
                    again = one.lost(transfer, now, fault=fault == "stalled")
                self._send_sums(again)

    def _give(self) -> None:
        """Order whatever can be fetched now, and note who is newly held at fault."""
        now = time.monotonic()
        spreading = [(n, one) for n, one in self._versions.items() if not one.done]
        for number, one in spreading:
            for name in [name for name in one.holders if name in self._nodes]:
                while isinstance(reply := one.ask(name, now), d.Give):
                    if reply.transfer in self._given:
                        break
                    self._order(reply.transfer, self._items[number])
        before, self._named = self._named, self._links.named()
        for name, why in self._named.items():
            if why != before.get(name):
                self.log.note("named", name, why=", ".join(why))

    def _send_sums(self, orders: Iterable[ledger.Order]) -> None:
        for order in orders:
            here, own = self._parts.get(int(order.round), {}), (order.receiver,)
            held = here.get((order.receiver, order.segment), [])
            base = next((i for i in held if i.ids == own), None)
            for part in here.get((order.sender, order.segment), []):
                if {*part.ids} == order.part:
                    self._order(order, part, base=base, afresh=order.afresh)

    def _order(self, transfer: Transfer, item: w.Item, **more: Any) -> None:  # noqa: ANN401 - fields of a `Get`
        """Tell a receiver what to fetch; one that has just left does not hear it."""
        name = f"{self._name}-{next(self._serial)}"
        self._orders[name] = UnderWay(transfer, item, time.monotonic())
        self._given.add(transfer)
        if len(self._orders) > _KEPT_ORDERS:
            self._given.discard(self._orders.pop(next(iter(self._orders))).transfer)
        here, may_s = self._nodes, lease_s(item.size)
        if (to := here.get(transfer.receiver)) and (of := here.get(transfer.sender)):
            to.orders.put(w.Get(self.term, name, item, of.place, may_s, **more))

    def _note(self, what: str, order: UnderWay, **more: Any) -> None:  # noqa: ANN401 - as `Log.note`
        of, item = order.transfer, order.item
        more |= {name: getattr(item, name) for name in ("size", "ids", "segment")}
        self.log.note(what, of.receiver, item.number, sender=of.sender, **more)

    def _expire(self) -> int:
        """End the leases that have run out, order anew, and return how many they were."""
        with self._lock:
            now, late = time.monotonic(), set[Transfer]()
            for spread in self._versions.values():
                late.update(spread.expire(now))
            for one in self._rounds.values():
                before = {*one.open}
                self._send_sums(one.expire(now))
                late |= before.difference(one.open)
            for order in [o for o in self._orders.values() if o.transfer in late]:
                self._note("failed", order, why="the lease has run out", cause="late")
            self._give()
            return len(late)
