"""A node: it holds versions and sums, gives them to other nodes and fetches what it is told to.

DIR/connection.json  0600: opens the node for its owner: he gives it bytes and collects sums
DIR/held/            what it holds (`holdings`)
DIR/tls/             certificate of the port

It decides nothing: each order names one item and one node to fetch it from. It obeys the latest
term that it has heard of; an order of an earlier one is refused, and its coordinator told so.
Nodes are the project's own; what another one sends is believed only under its digest.
"""

from __future__ import annotations

import queue
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from stoilo.core.errors import StoiloError, UnreachableError, UsageError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import TokenService
from stoilo.learn.store.place import ShardPlace, Streams
from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.holdings import KEPT_ROUNDS, Holdings, Kept
from stoilo.learn.traffic.links import Obedience, Term

_PAUSE_S = 0.2  # before a coordinator is called again; doubled to `_MOST_PAUSE_S`
_REPENT_S = 0.5  # before a failure is told: whatever follows is not at once again
_MOST_PAUSE_S = 2.0
_FETCHES = 8  # at a time
_NODES = "nodes"  # whose token other nodes have


class Agent(TokenService):
    """A node at a port.

    Args:
        data: its folder.
        address: where it listens, ``host:port``.
        coordinators: whom it reports to; the latest that leads is obeyed.
        names: more of the machine's, for TLS; the first is how others reach it.
        kept: how much of versions it holds.
        url: where volunteers get versions from it, empty: nowhere.
    """

    def __init__(
        self,
        data: Path,
        address: str,
        coordinators: Sequence[ShardPlace],
        names: tuple[str, ...] = (),
        *,
        kept: Kept = Kept(),  # noqa: B008 - immutable
        url: str = "",
    ) -> None:
        super().__init__(data, address, names)
        self._url = url
        self.place = self.admit_one()
        token = secrets.token_urlsafe(32)
        self._tokens[_NODES] = token
        self.for_nodes = ShardPlace(self.address, token, self._ca)
        self.holdings = Holdings(
            data / "held", kept, lambda item: self.tell(w.Forgot(item))
        )
        self._terms = Obedience()
        self._leader: _Link | None = None  # whose the newest term is
        self._rounds = dict[int, list[str]]()  # that the owner collects
        self._changed = threading.Condition()
        self._busy = set[w.Item]()
        # round and segment → the sum that was made last
        self._segments = dict[tuple[int, int], threading.Lock]()
        self._latest = dict[tuple[int, int], w.Item]()
        for item in sorted(self.holdings.list(), key=lambda one: len(one.ids)):
            if item.ids:
                self._latest[item.place] = item
        self._turns, self.streams = threading.BoundedSemaphore(_FETCHES), Streams()
        self._links = [_Link(self, place) for place in coordinators]

    def run(self) -> None:
        """Serve until it is closed."""
        for link in self._links:
            threading.Thread(target=link.run, daemon=True).start()
        super().run()

    def close(self) -> None:
        """Take no more streams and leave the coordinators."""
        super().close()
        self.streams.close()
        for link in self._links:
            link.close()

    def greet(self, link: _Link) -> w.Hello:
        """Return what a coordinator is told first."""
        with self._changed:
            led = self._leader not in {None, link}
            items, rounds = self.holdings.list(), dict(self._rounds)
            return w.Hello(self.for_nodes, self.term, led, items, rounds, self._url)

    @property
    def term(self) -> Term:
        """The latest that it has heard of."""
        return self._terms.newest

    def obey(self, order: w.Order, link: _Link) -> bool:
        """Do what a coordinator says; return whether its term is the latest."""
        with self._changed:
            if not self._terms.accepts(order.term):
                return False
            self._leader = link
        match order:
            case w.Get():
                threading.Thread(target=self._get, args=(order,), daemon=True).start()
            case w.Drop(number=number):
                self.holdings.drop(number, sums=True)
                for segment in range(w.SEGMENTS):
                    self._latest.pop((number, segment), None)
                    self._segments.pop((number, segment), None)
        return True

    def leave(self, link: _Link) -> None:
        """Note that a coordinator is gone."""
        with self._changed:
            if self._leader is link:
                self._leader = None

    def tell(self, report: w.Report) -> None:
        """Report to all coordinators, and wake the owner where he waits for it."""
        with self._changed:
            self._changed.notify_all()
        for link in self._links:
            link.tell(report)

    def _get(self, order: w.Get) -> None:
        """Do an order and report it; a failure after a pause, for another may follow."""
        if not self.holdings.wants(order.item):
            self.tell(w.Forgot(order.item))
            return
        with self._changed:
            if order.item in self._busy:
                return  # another coordinator's order: its end is reported to all
            self._busy.add(order.item)
        try:
            end = time.monotonic() + order.lease_s
            if order.item.ids:
                self._add(order, end)
            else:
                self._end(order, self._fetch(order, end))
        except (OSError, StoiloError) as error:
            time.sleep(_REPENT_S)
            why = str(error) or type(error).__name__
            failed = w.Failed(order.transfer, why[:200], _find_fault(error))
            self._end(order, failed)

    def _end(self, order: w.Get, report: w.Report) -> None:
        with self._changed:
            self._busy.discard(order.item)
        self.tell(report)

    def _fetch(
        self, order: w.Get, deadline: float, onto: w.Item | None = None
    ) -> w.Has:
        """Hold what an order names, or its sum with a part that is held."""
        item = order.item
        if not item.ids and item in self.holdings:
            return w.Has(item, order.transfer)
        patience = min(w.STALL_S, order.lease_s)

        def ask(stream: socket.socket) -> None:
            p.send_frame(stream, w.Fetch(order.transfer, item))
            w.receive(stream, p.Answer)

        with self._turns, self.streams.use(order.place, patience, ask) as stream:
            begun = time.monotonic()
            pieces = w.receive_pieces(stream, item, deadline)
            made = self.holdings.hold(item, pieces, onto)
            seconds = time.monotonic() - begun
            p.send_frame(stream, w.DONE)
        return w.Has(made, order.transfer, seconds)

    def _add(self, order: w.Get, deadline: float) -> None:
        """Add a part while it comes to what there is of its segment, one at a time.

        What is told of a segment is told in the order in which it was made.
        """
        place = order.item.place
        with self._segments.setdefault(place, threading.Lock()):
            onto = order.base if order.afresh else self._latest.get(place)
            has = self._fetch(order, deadline, onto)
            self._latest[place] = has.item
            self._end(order, has)

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Do one thing after the other for a node or the owner."""
        kinds = w.Fetch if owner == _NODES else w.Give | w.Collect
        try:
            for asked in self.requests(stream, partial(w.receive, stream, kinds)):
                stream.settimeout(w.STALL_S)
                match asked:
                    case w.Fetch():
                        self._serve(stream, asked)
                    case w.Give(item):
                        self._take(stream, item)
                    case w.Collect():
                        self._collect(stream, asked)
        except StoiloError as error:
            p.send_frame(stream, p.Refused(error.family, error.code, error.message))

    def _serve(self, stream: socket.socket, asked: w.Fetch) -> None:
        with self.holdings.open(asked.item) as file:
            p.send_frame(stream, w.DONE)
            begun = time.monotonic()
            w.send_bytes(stream, file)
            w.receive(stream, p.Answer)
        self.tell(w.Sent(asked.transfer, time.monotonic() - begun))

    def _take(self, stream: socket.socket, item: w.Item) -> None:
        if not self.holdings.wants(item):
            raise UnreachableError("STO-T037", "the node has no room for that")
        p.send_frame(stream, w.DONE)
        self.holdings.hold(
            item, w.receive_pieces(stream, item, time.monotonic() + w.OWNER_S)
        )
        self.tell(w.Has(item))
        if item.ids:
            self._add_own(item)
        p.send_frame(stream, w.DONE)

    def _add_own(self, item: w.Item) -> None:
        """Go on from an own part; at a root it joins what came before it."""
        with self._segments.setdefault(item.place, threading.Lock()):
            onto = self._latest.setdefault(item.place, item)
            if item.number not in self._rounds or {*onto.ids} & {*item.ids}:
                return
            with self.holdings.open(item) as file:
                pieces = iter(partial(file.read, w.PIECE), b"")
                made = self.holdings.hold(item, pieces, onto)
            self._latest[item.place] = made
            self.tell(w.Has(made))

    def _collect(self, stream: socket.socket, asked: w.Collect) -> None:
        """Give the owner what he waits for; what is left of a sum when he cannot wait on."""
        wanted, end = set(asked.ids), time.monotonic() + min(asked.wait_s, w.OWNER_S)
        if wanted:
            with self._changed:
                self._rounds[asked.number] = asked.ids
                for old in sorted(self._rounds)[:-KEPT_ROUNDS]:
                    del self._rounds[old]
            self.tell(w.Opened(asked.number, asked.ids))
        with self._changed:
            best = self._best(asked, wanted)
            while not best or wanted.difference(best[0].ids):
                if (left := end - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
                best = self._best(asked, wanted)
        if not best:
            why = f"nothing of {asked.number} came in time"
            raise UnreachableError("STO-T037", why)
        for item in best:
            with self.holdings.open(item) as file:
                p.send_frame(stream, w.Give(item))
                w.send_bytes(stream, file)
        w.receive(stream, p.Answer)
        if wanted and not wanted.difference(best[0].ids):
            with self._changed:
                self._rounds.pop(asked.number, None)
            self.tell(w.Opened(asked.number, []))

    def _best(self, asked: w.Collect, wanted: set[str]) -> list[w.Item]:
        """Return the version that is asked for, or the segments of the largest whole sum."""
        if asked.training:
            later = (one for one in self.holdings.list() if one.number >= asked.number)
            fits = [one for one in later if one.training == asked.training]
            return fits[-1:]
        found = dict[tuple[tuple[str, ...], int], dict[int, w.Item]]()
        for one in self.holdings.list(asked.number):
            if bool(one.ids) == bool(wanted) and wanted.issuperset(one.ids):
                found.setdefault((one.ids, one.of), {})[one.segment] = one
        whole = [key for key, segments in found.items() if len(segments) == key[1]]
        best = max(whole, key=lambda key: len(key[0]), default=None)
        return [found[best][segment] for segment in range(best[1])] if best else []


class _Link:
    """A node's two streams to one coordinator, for as long as the node lives."""

    def __init__(self, agent: Agent, place: ShardPlace) -> None:
        self._agent, self._place = agent, place
        self._is_closed = self._is_up = False
        self._reports = queue.SimpleQueue[w.Report]()

    def tell(self, report: w.Report) -> None:
        if self._is_up:  # who comes back is told everything first
            self._reports.put(report)

    def close(self) -> None:
        self._is_closed = True

    def run(self) -> None:
        """Be there for the coordinator, whenever it is."""
        pause = _PAUSE_S
        while not self._is_closed:
            with suppress(OSError, StoiloError):
                self._attend()
                pause = _PAUSE_S
            self._is_up = False
            self._agent.leave(self)
            time.sleep(pause)
            pause = min(pause * 2, _MOST_PAUSE_S)

    def _attend(self) -> None:
        with (
            self._place.connect(w.SILENCE_S) as reports,
            self._place.connect(w.SILENCE_S) as orders,
        ):
            self._is_up = True
            while not self._reports.empty():  # what it is told first has all of it
                self._reports.get()
            self._say(reports, self._agent.greet(self))
            p.send_frame(orders, w.Listen())
            heard = threading.Thread(target=self._listen, args=(orders,), daemon=True)
            heard.start()
            while heard.is_alive() and not self._is_closed:
                try:
                    report: w.Report = self._reports.get(timeout=w.BEAT_S)
                except queue.Empty:
                    self._agent.streams.trim()
                    report = w.Beat(self._agent.term)
                self._say(reports, report)

    def _listen(self, orders: socket.socket) -> None:
        with suppress(OSError, StoiloError):
            while True:
                order: w.Order = w.receive(orders, w.Order)
                if not self._agent.obey(order, self):
                    self.tell(w.Beat(self._agent.term))

    def _say(self, stream: socket.socket, said: w.Hello | w.Report) -> None:
        p.send_frame(stream, said)
        w.receive(stream, p.Answer)


def _find_fault(error: Exception) -> Literal["", "bytes", "stalled", "refused"]:
    """Say which of the two ends a failure speaks against."""
    if isinstance(error, TimeoutError):
        return "stalled"
    if isinstance(error, UsageError):
        return "refused"
    is_forged = isinstance(error, StoiloError) and error.code == "STO-L141"
    return "bytes" if is_forged else ""
