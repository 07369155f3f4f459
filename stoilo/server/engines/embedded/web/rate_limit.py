"""Who may put a question to the scheduler, and how often: looked at before it is read.

In this order, each step cheaper than what it keeps out: the address has calls left (nothing
is read), the key in the first bytes is an account's and has calls left (some KiB), the body
is as large as such a caller may send and neither the caller nor all together have too much
in hand (`body_limit`), and only then it is parsed, some at a time. A caller whose key is
unknown is told so without its body being parsed. Parsing has threads of its own, the large
bodies one for all of them, so that whoever sends much waits for others who do, and nobody
else waits for those. Who has a large body in hand, or too many of any size, is asked to call
again: what was sent is thrown away as it comes.

Nothing here survives a restart or needs to; what must (daily quotas) is in `accounts.quotas`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from stoilo.core.boinc.messages import SchedulerReply
from stoilo.core.errors import TrustError
from stoilo.core.rate_limit import TokenBuckets
from stoilo.core.types import BOUNDS
from stoilo.server.engines.embedded.accounts.accounts import key_digest
from stoilo.server.engines.embedded.scheduling.authenticate import too_many_calls
from stoilo.server.engines.embedded.scheduling.scheduler import unknown_key
from stoilo.server.engines.embedded.web.body_limit import (
    LARGE_BYTES,
    BodiesInHand,
    check_announced,
    drain,
    read_bounded,
    read_pieces,
)
from stoilo.server.engines.embedded.web.requests import parse_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.web.body_limit import BodyPace


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Calls allowed in a minute."""

    account_calls: int = 10  # making and looking up accounts, login: for each address
    new_accounts: int = 60  # making accounts, all addresses together
    # a household or institute behind one address
    scheduler_calls_of_address: int = 12_000
    scheduler_calls_of_account: int = 6_000  # all hosts of one account together
    # scheduler calls with a key that is no account's
    unknown_keys_of_address: int = 600
    unknown_keys: int = 6_000  # the same, all addresses together


class CallRates:
    """Says who calls too often. An IPv6 caller is its /64: one line has all of those.

    Scheduler calls from this machine are not limited by address: they are its own
    volunteers, or a proxy in front of it whose callers cannot be told apart here.
    """

    def __init__(self, limits: CallLimits, clock: Callable[[], float]) -> None:
        self._account_calls = TokenBuckets(limits.account_calls, clock=clock)
        self._new_accounts = TokenBuckets(limits.new_accounts, clock=clock)
        self._addresses = TokenBuckets(limits.scheduler_calls_of_address, clock=clock)
        self._accounts = TokenBuckets(limits.scheduler_calls_of_account, clock=clock)
        self._strangers = TokenBuckets(limits.unknown_keys_of_address, clock=clock)
        self._unknown_keys = TokenBuckets(limits.unknown_keys, clock=clock)

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
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if parsed.is_loopback:
        return f"loopback {parsed}"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)


# Body of a caller whose key does not stand at its beginning
STRANGER_BYTES: Final = 64 * 1024
HEAD_BYTES: Final = 4096
PARSED_AT_ONCE: Final = 4
KNOWN_FOR_S: Final = 300.0
MOST_KNOWN: Final = 65_536
_KEY: Final = re.compile(
    rb"\s*(?:<\?xml[^<>]{0,100}\?>\s*)?<scheduler_request>\s*"
    rb"<authenticator>\s*([0-9A-Za-z_]{1,64})\s*</authenticator>"
)


def peek_key(head: bytes) -> str:
    """Return the key at the beginning of a request, where every client writes it.

    Empty when something else stands there, or nothing readable.
    """
    match = _KEY.match(head[:HEAD_BYTES])
    return match[1].decode("ascii") if match else ""


class KnownKeys:
    """Remembers for a while which keys were an account's, so that calls need not ask.

    One that is no longer valid costs what an account's does until it is forgotten, and
    opens nothing: the scheduler asks the database.
    """

    def __init__(
        self,
        knows: Callable[[str], bool],
        *,
        most: int = MOST_KNOWN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._knows = knows
        self._most = most
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def remembers(self, key: str) -> bool:
        """Say whether a key is known to be an account's; asks nobody."""
        return self._until.get(key_digest(key), 0.0) > self._clock()

    def ask(self, key: str) -> bool:
        """Say whether an (untrusted) key is an account's."""
        if not self._knows(key):
            return False
        digest = key_digest(key)  # no key stays in memory
        self._until.pop(digest, None)
        self._until[digest] = self._clock() + KNOWN_FOR_S
        while len(self._until) > self._most:
            self._until.popitem(last=False)
        return True


class SchedulerDoor:
    """Reads the requests of those who may call."""

    def __init__(
        self,
        # says whether a key is an account's; asks the database
        knows: Callable[[str], bool],
        # says whether that account is a newcomer's; asks the database
        is_newcomer: Callable[[str], bool],
        rates: CallRates,  # how often who may call
        pace: BodyPace,  # how slowly a body may come
    ) -> None:
        self._keys = KnownKeys(knows)
        self._is_newcomer = is_newcomer
        self._in_hand = BodiesInHand()
        self._rates = rates
        self._pace = pace
        self._small = anyio.CapacityLimiter(PARSED_AT_ONCE)
        self._large = anyio.CapacityLimiter(1)

    async def admit(self, request: Request) -> SchedulerRequest | SchedulerReply:
        """Return the question of one who may ask, or the answer to one who may not.

        Raises:
            UsageError: ``STO-E012`` the body is too large, or comes too slowly.
            InternalError: ``STO-E034`` it stopped coming.
            TrustError: ``STO-X030`` it cannot be read.
        """
        address = request.client.host if request.client else ""
        pieces = read_pieces(request, self._pace)
        if not self._rates.allow_address(address):
            await drain(pieces)
            return too_many_calls()
        most = BOUNDS.scheduler_request_bytes
        await check_announced(request, pieces, most)
        head = await read_bounded(pieces, most, self._pace, HEAD_BYTES)
        key = peek_key(head)
        if key:
            refusal = await self._check(address, key)
            if refusal is not None:
                await drain(pieces)
                return refusal
        else:
            most = STRANGER_BYTES
            await check_announced(request, pieces, most)
        who = key or address
        with self._in_hand.body(who) as allowed:
            parsed = await self._take(pieces, head, most, who) if allowed else None
        if parsed is None:
            await drain(pieces)
            return too_many_calls()
        if key and key != parsed.authenticator:
            raise TrustError("STO-X030", "the request names two keys")
        if key:
            return parsed
        return await self._check(address, parsed.authenticator) or parsed

    async def _take(
        self, pieces: AsyncIterator[bytes], head: bytes, most: int, who: str
    ) -> SchedulerRequest | None:
        """Return the rest of a request; None when it is large and there is no place."""
        rest = await read_bounded(pieces, most - len(head), self._pace, LARGE_BYTES)
        body = head + rest
        if len(body) <= LARGE_BYTES:
            return await self._parse(body, self._small)
        newcomer = await anyio.to_thread.run_sync(self._is_newcomer, who)
        with self._in_hand.large(who, newcomer=newcomer) as place:
            if not place:
                return None
            body += await read_bounded(pieces, most - len(body), self._pace)
            return await self._parse(body, self._large)

    async def _check(self, address: str, key: str) -> SchedulerReply | None:
        """Return the answer to a key that may not call now, None to one that may."""
        known = self._keys.remembers(key) or await anyio.to_thread.run_sync(
            self._keys.ask, key
        )
        if not self._rates.allow_key(address, key, known=known):
            return too_many_calls()
        return None if known else unknown_key()

    async def _parse(
        self, body: bytes, turns: anyio.CapacityLimiter
    ) -> SchedulerRequest:
        """Parse in a thread of the few that do nothing else."""
        return await anyio.to_thread.run_sync(parse_request, body, limiter=turns)
