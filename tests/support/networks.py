"""Networks of their own for nodes, shaped by token buckets, and a whole traffic in them.

Each node lives behind a pair of buckets on one bridge (root, and a Linux that allows it).
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Self

import numpy as np

from stoilo.learn.traffic import owner
from tests.support.traffic import Coordinator, Nodes, wait_for

__all__ = ["Network", "Site", "find_obstacle"]


@dataclass
class Network:
    """Nodes' own networks on one bridge, each behind token buckets in both directions.

    Attributes:
        rates: node → Mbit/s from it and to it.
    """

    rates: Mapping[str, tuple[int, int]]
    name: str = field(default_factory=lambda: f"st{secrets.token_hex(3)}")

    @classmethod
    def draw(cls, count: int, seed: int) -> Self:
        """Return root, n1, n2, … with the paper's rates, 155 to 455 Mbit/s."""
        drawn = random.Random(seed)
        names = ["root", *(f"n{number}" for number in range(1, count + 1))]
        return cls(
            {one: (drawn.randint(155, 455), drawn.randint(155, 455)) for one in names}
        )

    def __post_init__(self) -> None:
        self._order = list(self.rates)
        self._net = f"10.{random.SystemRandom().randint(64, 255)}.0"  # ours alone

    def host(self, node: str) -> str:
        """The node's address."""
        return f"{self._net}.{self._order.index(node) + 1}"

    @property
    def here(self) -> str:
        """The address of who made it, not slowed down."""
        return f"{self._net}.254"

    def namespace(self, node: str) -> str:
        """The name of its network."""
        return f"{self.name}-{self._order.index(node)}"

    @property
    def _hub(self) -> str:
        return f"{self.name}-hub"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        _run("ip", "netns", "add", self._hub)
        inner = ["link add br0 type bridge", "link set br0 up", "link set lo up"]
        _batch("ip", self._hub, inner)
        _run(
            "ip",
            "link",
            "add",
            self.name,
            "type",
            "veth",
            "peer",
            "name",
            "up0",
            "netns",
            self._hub,
        )
        _run("ip", "address", "add", f"{self.here}/24", "dev", self.name)
        _run("ip", "link", "set", self.name, "up")
        joined, slowed = ["link set up0 master br0 up"], []
        for index, (node, (out, back)) in enumerate(self.rates.items()):
            own = self.namespace(node)
            _run("ip", "netns", "add", own)
            lines = [
                f"link add eth0 type veth peer name n{index} netns {self._hub}",
                f"address add {self.host(node)}/24 dev eth0",
                "link set eth0 up",
                "link set lo up",
            ]
            _batch("ip", own, lines)
            _batch("tc", own, [_bucket("eth0", out)])
            joined.append(f"link set n{index} master br0 up")
            slowed.append(_bucket(f"n{index}", back))
        _batch("ip", self._hub, joined)
        _batch("tc", self._hub, slowed)

    def slow(self, sender: str, receiver: str, rate: int) -> None:
        """Let the way from one to the other, and no other, carry so many Mbit/s."""
        to = f"protocol ip parent 1: u32 match ip dst {self.host(receiver)}/32"
        lines = [
            "qdisc replace dev eth0 root handle 1: htb default 1 r2q 1000",
            f"class add dev eth0 parent 1: classid 1:1 htb rate {self.rates[sender][0]}mbit",
            f"class add dev eth0 parent 1: classid 1:2 htb rate {rate}mbit",
            f"filter add dev eth0 {to} flowid 1:2",
        ]
        _batch("tc", self.namespace(sender), lines)

    def mend(self, sender: str) -> None:
        """Let all ways from a node be as they were."""
        line = _bucket("eth0", self.rates[sender][0]).replace("add", "replace", 1)
        _batch("tc", self.namespace(sender), [line])

    def __exit__(self, *_: object) -> None:
        for name in [self._hub, *map(self.namespace, self._order)]:
            subprocess.run(
                ["ip", "netns", "delete", name], check=False, capture_output=True
            )
        subprocess.run(
            ["ip", "link", "delete", self.name], check=False, capture_output=True
        )


class Site:
    """Root and nodes of a network under one coordinator; times are those of its record."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        plan: str = "ours",
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        self.names = list(network.rates)
        self.coordinator = Coordinator(
            folder / "coordinator", self.names, plan=plan, host=network.here
        )
        self.nodes = Nodes(folder)
        for name in self.names:
            kind = (kinds or {}).get(name, "")
            place = {"host": network.host(name), "namespace": network.namespace(name)}
            self.nodes.start(name, self.coordinator, kind=kind, **place)
        wait_for(lambda: len(self.coordinator.show(0).nodes) == len(self.names))

    def spread(
        self,
        number: int,
        size: int,
        but: Collection[str] = (),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> float:
        """Publish a version, wait for all, and return the mean receipt time, s."""
        owner.give(self.nodes.place("root"), number, os.urandom(size))
        meanwhile()
        expected = {*self.names} - {*but}
        wait_for(lambda: expected <= {*self.holders(number)})
        return fmean(self.receipts(number, "version").values())

    def holders(self, number: int) -> list[str]:
        """Return who has a version."""
        return self.coordinator.show(0).versions.get(number, [])

    def senders(self, number: int) -> dict[str, str]:
        """Return node → whom it had a version from."""
        events = [e for e in self.coordinator.show().events if e.number == number]
        return {e.node: e.sender for e in events if e.what == "sent" and not e.ids}

    def add_up(self, number: int, size: int) -> float:
        """Sum a vector of each node; return how long the root waited for it, s."""
        names = self.names[1:]

        def give(index: int) -> None:
            vector = np.full(size // 8, 1 << index, "<i8").tobytes()
            owner.give(self.nodes.place(names[index]), number, vector, (names[index],))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(give, range(len(names))))
        item, data = owner.collect(self.nodes.place("root"), number, names, 120.0)
        assert [*item.ids] == sorted(names)
        assert (np.frombuffer(data, "<i8") == (1 << len(names)) - 1).all()
        return max(self.receipts(number, "opened").values())

    def receipts(self, number: int, begun: str) -> dict[str, float]:
        """Return node → s from the beginning to its last receipt."""
        is_sum = begun == "opened"
        events = [e for e in self.coordinator.show().events if e.number == number]
        since = next(e.at for e in events if e.what == begun)
        sent = [e for e in events if e.what == "sent" and bool(e.ids) == is_sum]
        return {e.node: e.at - since for e in sent}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.nodes.__exit__()
        self.coordinator.kill()


def _bucket(device: str, rate: int) -> str:
    return f"qdisc add dev {device} root tbf rate {rate}mbit burst 128kb latency 50ms"


def _batch(tool: str, namespace: str, lines: Sequence[str]) -> None:
    text = "\n".join(lines) + "\n"
    _run(tool, "-n", namespace, "-batch", "-", text=text)


def _run(*words: str, text: str = "") -> None:
    done = subprocess.run(
        words, input=text, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, (words, done.stderr)


def find_obstacle() -> str:
    """Return why this process can make no networks; empty when it can."""
    if os.geteuid() != 0:
        return "networks of their own are made by root"
    name = f"st{secrets.token_hex(3)}"
    try:
        with Network({"a": (155, 155)}, name):
            return ""
    except (AssertionError, FileNotFoundError) as error:
        return f"this system makes no shaped networks: {error}"
