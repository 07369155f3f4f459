"""Hundreds of hosts in one process, speaking the real wire with a live project.

    hosts = make_hosts(keys, seed=7, behaviours={Behaviour.CHEAT: 0.1})
    with HostCrowd(server.url, hosts) as crowd:
        ...                      # hand out work, wait for its outcomes
    crowd.report.calls, crowd.report.percentile(0.99)

A host keeps to BOINC's rules as far as a scheduler can see: it reports until it is
acknowledged, names what it holds, obeys both delays, downloads every input and uploads a
result file. What it computes is `answer` of its input, without a jail. Hosts differ by
`Behaviour`; each draws from a generator of its own, so a seed gives the same host again
(but not the same order of calls: that is the network's).
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from typing import Self

from stoilo.core.errors import UnreachableError
from tests.support.hostwire import HostWire
from tests.support.simulatedhost import (
    Behaviour,
    CrowdReport,
    SimulatedHost,
    make_hosts,
)

__all__ = [
    "Behaviour",
    "CrowdReport",
    "HostCrowd",
    "HostWire",
    "SimulatedHost",
    "make_hosts",
]


class HostCrowd:
    """Hosts that step by themselves, some at a time, while the block lasts.

    Args:
        master_url: of the project.
        hosts: they start one after the other, within `spread_s`.
        threads: steps made at the same time.
        spread_s: within which time the first calls are made.
        retry_s: pause of a host after the project was in trouble.
    """

    def __init__(
        self,
        master_url: str,
        hosts: Sequence[SimulatedHost],
        *,
        threads: int = 8,
        spread_s: float = 0.5,
        retry_s: float = 0.5,
    ) -> None:
        self.hosts = list(hosts)
        self.report = CrowdReport()
        self._wire = HostWire(master_url, connections=threads)
        self._retry_s = retry_s
        self._ready = threading.Condition()
        self._stopping = False
        self._failure: BaseException | None = None
        now, count = time.monotonic(), max(1, len(self.hosts))
        self._due = [
            (now + spread_s * n / count, n, host) for n, host in enumerate(self.hosts)
        ]
        self._next_number = len(self._due)
        self._threads = [
            threading.Thread(target=self._run, name=f"crowd-{n}", daemon=True)
            for n in range(threads)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._ready:
            self._stopping = True
            self._ready.notify_all()
        for thread in self._threads:
            thread.join()
        self._wire.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        """Step hosts until the end; what nobody expected ends the whole crowd."""
        try:
            while (host := self._take_due()) is not None:
                self._step(host)
        except BaseException as error:  # noqa: BLE001 - raised again at the end
            with self._ready:
                self._failure, self._stopping = error, True
                self._ready.notify_all()

    def _take_due(self) -> SimulatedHost | None:
        """Return the next host whose time has come; None at the end."""
        with self._ready:
            while not self._stopping:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._ready.wait(wait)
        return None

    def _step(self, host: SimulatedHost) -> None:
        """Step one host and put it back."""
        if host.behaviour is Behaviour.CLONE and host.host_id and host.held:
            host.behaviour = Behaviour.HONEST
            twin = host.copy_state()
            self.hosts.append(twin)
            self._put(twin, 0.0)
        try:
            pause = host.step(self._wire, self.report)
        except UnreachableError as error:
            self.report.troubles[error.message] += 1
            pause = self._retry_s
        self._put(host, pause)

    def _put(self, host: SimulatedHost, pause: float) -> None:
        """Let a host come again after `pause` s."""
        with self._ready:
            due = time.monotonic() + pause
            heapq.heappush(self._due, (due, self._next_number, host))
            self._next_number += 1
            self._ready.notify()
