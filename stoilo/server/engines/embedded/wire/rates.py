"""How often strangers may call: bounded tables of token buckets, in memory.

Nothing here survives a restart or needs to; what must (daily quotas) is in `quotas`.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CallLimits", "CallRates", "RateLimit"]


class RateLimit:
    """Token buckets, one a name (an address, an account), the busiest ones kept."""

    def __init__(
        self, per_minute: int, *, addresses: int = 4096, clock: Callable[[], float]
    ) -> None:
        self._rate = per_minute / 60.0
        self._most = float(per_minute)
        self._addresses = addresses
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Take one token of `address`; False when it has none left."""
        now = self._clock()
        level, since = self._buckets.pop(address, (self._most, now))
        level = min(self._most, level + (now - since) * self._rate)
        allowed = level >= 1.0
        self._buckets[address] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > self._addresses:
            self._buckets.popitem(last=False)
        return allowed


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Calls allowed in a minute.

    Attributes:
        account_calls: making and looking up accounts, login: for each address.
        new_accounts: making accounts, all addresses together.
        scheduler_calls_of_address: a household or institute behind one address.
        scheduler_calls_of_account: all hosts of one account together.
        unknown_keys_of_address: scheduler calls with a key that is no account's.
        unknown_keys: the same, all addresses together.
    """

    account_calls: int = 10
    new_accounts: int = 60
    scheduler_calls_of_address: int = 12_000
    scheduler_calls_of_account: int = 6_000
    unknown_keys_of_address: int = 600
    unknown_keys: int = 6_000


class CallRates:
    """Says who calls too often. An IPv6 caller is its /64: one line has all of those.

    Scheduler calls from this machine are not limited by address: they are its own
    volunteers, or a proxy in front of it whose callers cannot be told apart here.
    """

    def __init__(self, limits: CallLimits, clock: Callable[[], float]) -> None:
        self._account_calls = RateLimit(limits.account_calls, clock=clock)
        self._new_accounts = RateLimit(limits.new_accounts, clock=clock)
        self._addresses = RateLimit(limits.scheduler_calls_of_address, clock=clock)
        self._accounts = RateLimit(limits.scheduler_calls_of_account, clock=clock)
        self._strangers = RateLimit(limits.unknown_keys_of_address, clock=clock)
        self._unknown_keys = RateLimit(limits.unknown_keys, clock=clock)

    def allow_account_call(self, address: str) -> bool:
        """Say whether `address` may try a password or key now."""
        return self._account_calls.allow(_network(address))

    def allow_new_account(self) -> bool:
        """Say whether anybody may make an account now."""
        return self._new_accounts.allow("")

    def allow_address(self, address: str) -> bool:
        """Say whether anybody at `address` may call the scheduler now."""
        network = _network(address)
        return network.startswith("loopback") or self._addresses.allow(network)

    def allow_key(self, address: str, key: str, *, known: bool) -> bool:
        """Say whether a host with `key` may call the scheduler now.

        Keys that are not `known` share one bucket: whoever makes them up gets no more
        for it, and takes no account's place in the table.
        """
        if not known:
            network = _network(address)
            local = network.startswith("loopback")
            of_address = local or self._strangers.allow(network)
            return of_address and self._unknown_keys.allow("")
        name = hashlib.sha256(key.encode()).hexdigest()  # no key stays in memory
        return self._accounts.allow(name)


def _network(address: str) -> str:
    """Return the name under which an address is counted."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if parsed.is_loopback:
        return f"loopback {parsed}"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)
