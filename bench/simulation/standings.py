"""How every simulated host stands with its project: record, quota, ban."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.engines.embedded.accounts.quotas import (
    RULES,
    Quota,
    after_error,
    after_issue,
    after_success,
    room_in,
)

if TYPE_CHECKING:
    from bench.simulation.hosts import Host

__all__ = ["Standings"]


class Standings:
    """The engine's tables about hosts, in memory; its own rules change them.

    Args:
        season: valid results in a row that a host begins with.

    Attributes:
        records: valid results in a row.
        banned: hosts that get nothing.
        own: the project's machines.
        caught: the copy of each host that was the first to be found wrong.
    """

    def __init__(self, season: int) -> None:
        self._season = season
        self._quotas: dict[int, Quota] = {}
        self.records: dict[int, int] = {}
        self.banned: set[int] = set()
        self.own: set[int] = set()
        self.caught: dict[int, str] = {}

    def meet(self, host: Host, *, own: bool) -> None:
        """Note a host that calls."""
        self.records.setdefault(host.id, self._season)
        if own:
            self.own.add(host.id)

    def room(self, host: int, wanted: int, now: int) -> int:
        """Return how many copies a host may have."""
        if host in self.banned:
            return 0
        return min(wanted, room_in(self._quota(host), wanted, now))

    def issued(self, host: int, copies: int, now: int) -> None:
        """Count copies that were handed out."""
        if copies:
            self._quotas[host] = after_issue(self._quota(host), copies, now)

    def agreed(self, host: int) -> None:
        """Count a result that agreed with another host's."""
        self.records[host] += 1

    def paid(self, host: int) -> None:
        """Count a valid result for the quota."""
        self._quotas[host] = after_success(self._quota(host))

    def failed(self, host: int, now: int) -> None:
        """Count a bad result: the record begins again."""
        self.records[host] = 0
        self._quotas[host] = after_error(self._quota(host), now)

    def ban(self, host: int) -> None:
        """Give a host no more work."""
        self.banned.add(host)
        self.records[host] = 0

    def _quota(self, host: int) -> Quota:
        return self._quotas.get(host, Quota(RULES.per_cpu))
