"""Nodes of project traffic as processes, on loopback or each in a given network.

    python -m tests.support.traffic coordinator PLAN --data DIR --listen ADDRESS -- NODE…
    python -m tests.support.traffic nodes     (one JSON line of `Start` a node on stdin)

All nodes are forks of one process that has imported everything: thirty start in a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from bench.traffic import trees
from stoilo.core.errors import InternalError
from stoilo.learn.store import protocol
from stoilo.learn.store.network import TokenService
from stoilo.learn.store.place import ShardPlace, read_place
from stoilo.learn.traffic import agent, distribution, face, holdings, wire
from stoilo.learn.traffic.links import Term
from stoilo.learn.traffic.record import Event, Record, read_record

__all__ = [
    "DYING",
    "FORGED",
    "LYING",
    "MAD",
    "MORTAL",
    "SERVING",
    "Coordinator",
    "Nodes",
    "Told",
    "make_record",
    "wait_for",
]

_HERE = (sys.executable, "-m", "tests.support.traffic")
FORGED, LYING, MORTAL, MAD = "forged", "lying", "mortal", "mad"
SERVING, DYING = "serving", "dying"  # to volunteers; the second dies in a download
_NEWNET = 0x40000000


class Forger(agent.Agent):
    """A node that gives other bytes than it was asked for."""

    def __init__(self, data: Path, *others: Any, **more: Any) -> None:
        super().__init__(data, *others, **more)
        self.holdings = ForgedHoldings(data / "held")


class ForgedHoldings(holdings.Holdings):
    """Zeros, whatever is asked for."""

    def open(self, item: wire.Item) -> Any:
        return io.BytesIO(bytes(item.size))


class Mortal(agent.Agent):
    """A node that is killed between receiving and forwarding."""

    def _serve(self, stream: Any, asked: wire.Fetch) -> None:
        if len(asked.item.ids) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._serve(stream, asked)


class Liar(agent.Agent):
    """A node that says it was a thousand times as fast as it was."""

    factor = 1 / 1000

    def tell(self, report: Any) -> None:
        if isinstance(report, wire.Has | wire.Sent) and report.seconds:
            report = type(report)(
                **{**_fields(report), "seconds": report.seconds * self.factor}
            )
        super().tell(report)


class Mad(Liar):
    """A node whose times are no numbers."""

    factor = math.nan


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


class DyingFace(face.VolunteerFace):
    """A face that ends its node in the middle of a whole file; ranges come."""

    def app(self, *about: Any) -> Any:
        honest = super().app(*about)

        async def dying(scope: Any, receive: Any, send: Any) -> None:
            ranged = any(name == b"range" for name, _ in scope["headers"])
            sent = 0

            async def half(message: Any) -> None:
                nonlocal sent
                await send(message)
                sent += len(message.get("body", b""))
                if sent and not ranged:
                    os.kill(os.getpid(), signal.SIGKILL)

            await honest(scope, receive, half)

        return dying


FACES = {SERVING: face.VolunteerFace, DYING: DyingFace}


class Unforgetting(distribution.Distribution):
    """A version whose coordinator's rates never grow old."""

    def __init__(self, *about: Any, **more: Any) -> None:
        super().__init__(*about, **more)
        self.links.memory = None


# No choice by chance once all links are known: only age makes one unknown again.
GREEDY = {"greedy": distribution.Distribution, "unforgetting": Unforgetting}
KINDS = {"": agent.Agent, FORGED: Forger, LYING: Liar, MORTAL: Mortal, MAD: Mad}


@dataclass(frozen=True)
class Start:
    """One node to start."""

    name: str
    folder: str
    listen: str
    coordinators: list[str]  # connection files
    kind: str = ""
    namespace: str = ""


class Nodes:
    """Nodes by name, each a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids: dict[str, int] = {}
        self._nursery = subprocess.Popen(
            [*_HERE, "nodes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self,
        name: str,
        *coordinators: Coordinator,
        kind: str = "",
        host: str = "127.0.0.1",
        namespace: str = "",
    ) -> None:
        """Start one, at any port: others hear of it from the coordinator."""
        files = [str(one.folder / "nodes" / f"{name}.json") for one in coordinators]
        folder, listen = str(self.folder / name), f"{host}:0"
        started = Start(name, folder, listen, files, kind, namespace)
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(asdict(started)) + "\n")
        self._nursery.stdin.flush()
        self.pids[name] = json.loads(self._nursery.stdout.readline())["pid"]

    def place(self, name: str) -> ShardPlace:
        """What its connection file says."""
        return read_place(self.connection(name))

    def connection(self, name: str) -> Path:
        """Its connection file, for its owner."""
        return self.folder / name / "connection.json"

    def signal(self, name: str, number: int) -> None:
        """Send one a signal."""
        os.kill(self.pids[name], number)

    def is_alive(self, name: str) -> bool:
        """Say whether its process is there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[name], 0)
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Its children die with it: they asked the kernel for that.
        self._nursery.kill()
        self._nursery.communicate()


class Coordinator:
    """The coordinator, as a process: started, killed, started again on its port."""

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[str],
        *,
        plan: str = "ours",
        host: str = "127.0.0.1",
    ) -> None:
        self.folder, self._nodes, self._plan = folder, list(nodes), plan
        self.address = f"{host}:0"
        self.start()

    def start(self) -> None:
        """Start it and wait for its line."""
        words = ["--data", str(self.folder), "--listen", self.address]
        self.process = subprocess.Popen(
            [*_HERE, "coordinator", self._plan, *words, "--", *self._nodes],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = json.loads(self.process.stdout.readline())["coordinator"]

    @property
    def place(self) -> ShardPlace:
        """What opens it for an operator."""
        return read_place(self.folder / "connection.json")

    def show(self, events: int = 4096) -> Record:
        """Return its record."""
        return read_record(self.place, events)

    def kill(self) -> None:
        """``kill -9``, and wait for the end."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def make_record(nodes: int = 12) -> Record:
    """Return what an operator of so many nodes sees; the last one is gone and at fault."""
    names, drawn = ["root", *(f"n{i}" for i in range(1, nodes + 1))], random.Random(1)
    events, now = [Event(1_795_000_000.0, "joined", one) for one in names], 0.0

    def send(number: int, child: int, *, up: bool) -> float:
        """Note a transfer between a node and one before it; return when it ended."""
        ends = names[drawn.randint(0, child - 1)], names[child]
        (of, to), took = ends[::-1] if up else ends, drawn.uniform(0.2, 2)
        ids, end = (of,) if up else (), now + took / 2
        events.append(Event(end, "sent", to, number, of, 9 << 20, took, ids=ids))
        return end

    for number in (1, 2, 3):
        now = 1_795_000_000.0 + 60 * number
        events.append(Event(now, "version", "root", number))
        for child in range(1, nodes):
            now = send(number, child, up=False)
        events.append(Event(now, "opened", "root", number))
        for child in range(nodes - 1, 0, -1):
            now = send(number, child, up=True)
    why, last = "bytes came that have another digest", names[-1]
    events.append(Event(now, "failed", "n1", 3, last, why=why, cause="bytes"))
    events.append(Event(now, "named", last, why="bytes"))
    return Record(
        term=Term(1, "x"),
        nodes={name: f"10.64.0.{i}:57098" for i, name in enumerate(names[:-1])},
        rates=[(e.sender, e.node, e.size / e.seconds) for e in events if e.seconds],
        named={last: ["bytes"]},
        versions=dict.fromkeys((1, 2, 3), names[:-1]),
        rounds={3: names[1:-1]},
        events=events,
        disputes=[("bytes", "n1", last)],
        leases=2,
    )


class Told(TokenService):
    """A dispatcher that shows the record that it was told."""

    def __init__(self, data: Path, record: Record) -> None:
        super().__init__(data, "127.0.0.1:0", ())
        self.place, self.record = self.admit_one(), record
        self.file = data / "connection.json"

    def talk(self, stream: Any, owner: str) -> None:
        del owner  # there is one
        wire.receive(stream, wire.Show)
        protocol.send_frame(stream, self.record)


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until a condition holds; fail when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s"
        time.sleep(0.02)


def _serve_node(start: Start) -> None:
    if start.namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{start.namespace}").open("rb") as file:
            assert libc.setns(file.fileno(), _NEWNET) == 0, ctypes.get_errno()
    places = [read_place(Path(one)) for one in start.coordinators]
    host = start.listen.rpartition(":")[0]
    made = FACES[start.kind]("127.0.0.1:0") if start.kind in FACES else None
    kind = KINDS.get(start.kind, agent.Agent)
    more: dict[str, Any] = {"url": made.url} if made else {}
    node = kind(Path(start.folder), start.listen, places, (host,), **more)
    if made is not None:
        made.start(node.holdings, node.tell)
    sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    node.run()


def _breed() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: with this process
            try:
                _serve_node(Start(**json.loads(line)))
            finally:
                os._exit(1)


def _coordinate(plan: str, data: str, address: str, nodes: list[str]) -> None:
    from stoilo.learn.traffic.coordinator import Coordinator as Served  # noqa: PLC0415

    more: dict[str, Any] = {}
    if plan in GREEDY:
        more["distribution"] = partial(GREEDY[plan], p_max=1.0)
    elif plan != "ours":  # a fixed tree, whose root is the first node
        tree = {"star": trees.star, "tree": trees.balance}[plan](nodes[0], nodes[1:])
        more["distribution"] = partial(trees.TreeDistribution, tree=tree)
        more["aggregation"] = partial(trees.TreeAggregation, tree=tree)
    host = address.rpartition(":")[0]
    service = None
    while service is None:  # nodes that call it may hold its port for a moment
        try:
            service = Served(Path(data), address, nodes, (host,), **more)
        except InternalError:
            time.sleep(0.05)
    sys.stdout.write(json.dumps({"coordinator": service.address}) + "\n")
    sys.stdout.flush()
    service.run()


if __name__ == "__main__":
    if sys.argv[1] == "nodes":
        _breed()
    else:
        _, _, plan, _, data, _, address, _, *names = sys.argv
        _coordinate(plan, data, address, names)
