"""What is remembered of hosts between two calls and need not be stored each time.

Lost at a restart: the number of a host's last call is then the stored one, at most some
minutes old (`hosts.SEEN_EVERY_S`), and when it last had work is looked up again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["Presence"]

MOST: Final = 65_536
"""Hosts; those that have not called for longest are forgotten."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One host: number of its last call; when it last was given work, None: not known."""

    rpc_seqno: int = 0
    worked_at: int | None = None


class Presence:
    """The hosts that have called lately; safe for several threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._hosts: OrderedDict[int, _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def last_call(self, host_id: int) -> int:
        """Return the number of a host's last call, 0 when it is not known."""
        return self._hosts.get(host_id, _Seen()).rpc_seqno

    def worked_at(self, host_id: int) -> int | None:
        """Return when a host was last given work, s; None when it is not known."""
        return self._hosts.get(host_id, _Seen()).worked_at

    def note_call(self, host_id: int, rpc_seqno: int, *, anew: bool = False) -> None:
        """Remember that a host called; its numbers grow unless it counts anew."""
        with self._lock:
            seen = self._hosts.pop(host_id, _Seen())
            last = rpc_seqno if anew else max(seen.rpc_seqno, rpc_seqno)
            self._hosts[host_id] = replace(seen, rpc_seqno=last)
            if len(self._hosts) > self._most:
                self._hosts.popitem(last=False)

    def note_work(self, host_id: int, at: int) -> None:
        """Remember when a host that has called was last given work, s; 0 for never."""
        with self._lock:
            if host_id in self._hosts:
                seen = self._hosts[host_id]
                self._hosts[host_id] = replace(seen, worked_at=at)
