"""Nodes of project traffic in this process, which count who comes and keep their reports."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from stoilo.core.digests import content_digest
from stoilo.learn.store import protocol
from stoilo.learn.traffic import agent, holdings, wire
from stoilo.learn.traffic.links import Term

__all__ = ["Cutting", "Still", "Watched", "put"]


class Watched(agent.Agent):
    """A node that counts handshakes, keeps its reports and runs in a thread."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, "127.0.0.1:0", [])
        self.greeted, self.reports = 0, list[wire.Report]()
        threading.Thread(target=self.run, daemon=True).start()

    def _greet(self, plain: socket.socket) -> tuple[socket.socket, str]:
        self.greeted += 1
        return super()._greet(plain)

    def tell(self, report: wire.Report) -> None:
        self.reports.append(report)

    def fetch(self, item: wire.Item, giver: agent.Agent) -> wire.Report:
        """Do an order to fetch; return what is reported of it."""
        term, place = Term(1), giver.for_nodes
        self._get(wire.Get(term, "t", item, place, 30.0))
        return self.reports[-1]


class Cutting(Watched):
    """A node that hangs up in the middle of what it gives."""

    def _serve(self, stream: socket.socket, asked: wire.Fetch) -> None:
        protocol.send_frame(stream, wire.DONE)
        stream.sendall(bytes(asked.item.size // 2))
        raise ConnectionResetError


class Still(Watched):
    """A node that answers nothing, for as long as the other one waits."""

    def _serve(self, stream: socket.socket, asked: wire.Fetch) -> None:
        del asked
        stream.settimeout(None)
        stream.recv(1)


def put(
    kept: holdings.Holdings,
    number: int,
    data: bytes,
    ids: tuple[str, ...] = (),
    segment: int = 0,
    of: int = 1,
) -> wire.Item:
    """Let a node hold bytes that are here; return the item that they are."""
    item = wire.Item(number, content_digest(data), len(data), ids, segment, of)
    return kept.hold(item, [data])
