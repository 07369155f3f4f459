"""Who may have how much in hand: decided by a call's head, before its message is read.

gRPC reads a message as soon as somebody asks for it, whoever sends it, and bounds it only
by itself: many half-sent ones fill the memory. Here every method is taken as a stream, so
that nothing is asked for until the caller is known (`Authenticator`), has not too many calls at
once, comes no faster than he may, is not one whom the method would refuse anyway, and there
is room for a whole message (`BodyLimit`). What is not asked for stays at its sender, but
for the connection's small window. A call that waits here costs little, and ends when its
caller goes away. Whose calls were for nothing is read slowly for a while (`Waste`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from stoilo.core.errors import PolicyRefusal, StoiloError, UsageError
from stoilo.core.fairqueue import Shares
from stoilo.core.types import BOUNDS
from stoilo.server.admission.fairness import (
    BodyLimit,
    FairTurns,
    Waste,
    WasteBounds,
)
from stoilo.server.api.service import (
    CHUNK_BYTES,
    SMALL_BYTES,
    bearer_token,
    fail,
)

if TYPE_CHECKING:
    from stoilo.server.admission.fairness import Hold
    from stoilo.server.admission.tokens import Authenticator
    from stoilo.server.db.records import Owner


STRANGER: Final = 0  # stands for the account of calls that need no token: health checks
OURS: Final = "/stoilo."  # begins the name of every method that wants a token
AT_WORK: Final = Shares(slots=8, busy_above=1.0, half_life_s=10.0)
WASTE: Final = WasteBounds()

BATCHED: Final = frozenset({"CreateTask", "CreateTasks"})
"""Methods whose calls share their work: many at once cost little more than one."""

OUR_FAULTS: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE})
"""Ends of calls for which their callers can do nothing."""

Context = Any  # grpc.aio.ServicerContext has no usable types
Handler = Any  # grpc's record of parsers and a method, without types


@dataclass(frozen=True, slots=True)
class IntakeBounds:
    """What may be in hand at once."""

    calls: int = 2048  # of all accounts together
    calls_of_account: int = 256  # of one account, those that wait included
    calls_of_strangers: int = 64  # without a token
    # of messages in memory, in all; shared by `FairRoom`'s rule
    held_bytes: int = 128 * 1024 * 1024
    message_bytes: int = BOUNDS.rpc_message_bytes  # the largest message
    small_bytes: int = SMALL_BYTES  # an answer of no more needs no room of its own
    message_s: float = 60.0  # from its turn to its last byte, for one message, s
    calls_per_s: float = 500.0  # of one account, for as long as it likes
    burst: int = 5_000  # calls of one account that may come at once
    # answers of one account's calls that are refused by their head
    refusals_per_s: float = 20.0
    refusals_burst: int = 100  # of these, at once
    # calls for which a thread works at the same time; the unit is s
    at_work: Shares = AT_WORK
    waste: WasteBounds = WASTE  # bytes of calls that end without effect


@dataclass(slots=True)
class _Call:
    """One call."""

    account: int  # whose
    requests: AsyncIterator[bytes]  # its messages, as bytes
    parse: Callable[[bytes], Any]  # makes a message of them
    # bytes of messages so far; one that is still on its way counts in full
    read: int = 0


class Places:
    """How many calls are in hand, and whose. For one event loop."""

    def __init__(self, bounds: IntakeBounds) -> None:
        self._bounds = bounds
        self._of: Counter[int] = Counter()
        self._all = 0

    @contextmanager
    def one(self, account: int) -> Iterator[None]:
        """Take a place for one call, or raise ``STO-R008``."""
        bounds = self._bounds
        own = bounds.calls_of_account if account else bounds.calls_of_strangers
        if self._of[account] >= own:
            raise _too_many(f"{own} calls of one account")
        if self._all >= bounds.calls:
            raise _too_many(f"{bounds.calls} calls of all accounts")
        self._of[account] += 1
        self._all += 1
        try:
            yield
        finally:
            self._all -= 1
            self._of[account] -= 1
            if not self._of[account]:
                del self._of[account]


class CallPace:
    """When an account's next call may go on: bursts, then a steady pace."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._gap_s = 1.0 / per_s
        self._ahead_s = burst / per_s
        self._next: dict[int, float] = {}

    def delay(self, account: int, now: float) -> float:
        """Count one call and return how long it has to wait, s."""
        due = max(self._next.get(account, now), now)
        self._next[account] = due + self._gap_s
        if len(self._next) > BOUNDS.map_items:
            self._next = {one: at for one, at in self._next.items() if at > now}
        return max(0.0, due - now - self._ahead_s)


class Intake(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Stands before every method."""

    def __init__(
        self,
        authenticator: Authenticator,  # finds the owner of a token
        # by name of a method, what refuses an owner whom it would refuse anyway
        early: Mapping[str, Callable[[Owner], None]],
        bounds: IntakeBounds,  # what may be in hand
        # seconds of a clock that is never set
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authenticator = authenticator
        self._early = early
        self._bounds = bounds
        self._clock = clock
        self._places = Places(bounds)
        self._pace = CallPace(bounds.calls_per_s, bounds.burst)
        self._refusals = CallPace(bounds.refusals_per_s, bounds.refusals_burst)
        self._turns = FairTurns(bounds.at_work, clock)
        self._waste = Waste(bounds.waste, clock)
        self.room = BodyLimit(bounds.held_bytes)

    async def intercept_service(
        self,
        continuation: Callable[[Any], Any],
        details: Any,  # noqa: ANN401 - gRPC's own
    ) -> Handler:
        """Return the method's handler behind all that is checked here."""
        handler = await continuation(details)
        if handler is None:
            return None
        method = str(details.method)
        ours, name = method.startswith(OURS), method.rpartition("/")[2]

        async def taken(requests: AsyncIterator[bytes], context: Context) -> None:
            """Take one call."""
            try:
                owner = None
                if ours:
                    owner = await self._authenticator.find(bearer_token(context))
                account = owner.account_id if owner else STRANGER
                with self._places.one(account):
                    await _pause(self._pace.delay(account, self._clock()))
                    if owner is not None:
                        await self._check(name, owner)
                    call = _Call(account, requests, handler.request_deserializer)
                    with self._counted(call, context):
                        await self._serve(handler, name, call, context)
            except StoiloError as error:
                await fail(context, error)

        # messages come and go as bytes: their size is known, and not counted out again
        return grpc.stream_stream_rpc_method_handler(taken, None, None)

    @contextmanager
    def _counted(self, call: _Call, context: Context) -> Iterator[None]:
        """Count what a call has sent against its account if nothing comes of it."""
        try:
            yield
        except BaseException:
            if call.account and context.code() not in OUR_FAULTS:
                self._waste.add(call.account, call.read)
            raise

    async def _check(self, name: str, owner: Owner) -> None:
        """Refuse whom the method would refuse anyway; who asks on gets slower answers."""
        try:
            self._early.get(name, _everybody)(owner)
        except StoiloError:
            await _pause(self._refusals.delay(owner.account_id, self._clock()))
            raise

    async def _serve(
        self, handler: Handler, name: str, call: _Call, context: Context
    ) -> None:
        """Let the method have its message, and its answers out."""
        render = handler.response_serializer
        if handler.stream_unary is not None:
            async with aclosing(self._messages(call)) as messages:
                answer = await handler.stream_unary(messages, context)
                await context.write(render(answer))
        elif handler.unary_stream is not None:
            async with self._first(call) as (request, hold):
                hold.resize(2 * CHUNK_BYTES if call.account else 0)
                answers = handler.unary_stream(_needed(request), context)
                async for answer in answers:
                    await context.write(render(answer))
        else:
            method = handler.unary_unary
            if call.account and name not in BATCHED:
                method = self._in_turn(method, call.account)
            await self._answer(method, render, call, context)

    def _in_turn(self, method: Handler, account: int) -> Handler:
        """Return a method of which few are at work, those of a busy account fewer."""

        async def turn(request: object, context: Context) -> object:
            async with self._turns.one(account):
                return await method(request, context)

        return turn

    async def _answer(
        self,
        method: Handler,
        render: Callable[[Any], bytes],
        call: _Call,
        context: Context,
    ) -> None:
        """Send one answer; a large one is made again once there is room for it.

        Its size is not known before, and only methods that change nothing have such.
        """
        async with self._first(call) as (request, hold):
            answer = render(await method(_needed(request), context))
            size = len(answer)
            if size <= max(hold.size, self._bounds.small_bytes):
                await context.write(answer)
                return
            del answer
        async with self.room.hold(call.account, size):
            await context.write(render(await method(request, context)))

    @asynccontextmanager
    async def _first(self, call: _Call) -> AsyncIterator[tuple[Any, Hold]]:
        """Yield the next message and its room, which is held meanwhile."""
        async with AsyncExitStack() as stack:
            async with self._waste.turn(call.account) as pay:
                most = self._bounds.message_bytes
                hold = await stack.enter_async_context(
                    self.room.hold(call.account, most)
                )
                call.read += most
                data = await self._next(call.requests)
                size = len(data) if data is not None else 0
                call.read -= most - size
                pay(size)
            hold.resize(size)
            yield None if data is None else _parse(call, data), hold

    async def _next(self, requests: AsyncIterator[bytes]) -> bytes | None:
        """Return the next message's bytes, None after the last, or raise ``STO-R033``."""
        try:
            async with asyncio.timeout(self._bounds.message_s):
                return await anext(requests, None)
        except TimeoutError as error:
            raise UsageError(
                "STO-R033",
                f"the message did not come in {self._bounds.message_s:.0f} s",
                hint="send smaller messages over this network",
            ) from error

    async def _messages(self, call: _Call) -> AsyncGenerator[Any]:
        """Yield a stream's messages, each with room while it is worked on."""
        while True:
            async with self._first(call) as (request, _):
                if request is None:
                    return
                yield request


def _parse(call: _Call, data: bytes) -> Any:  # noqa: ANN401 - any message
    """Return a message, or raise ``STO-R010``.

    gRPC's own answer would be a status without our code, and a traceback in the log.
    """
    try:
        return call.parse(data)
    except DecodeError as error:
        raise UsageError(
            "STO-R010", "the message cannot be read as this call's request"
        ) from error


async def _pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)


def _everybody(owner: Owner) -> None:
    """Refuse nobody."""


def _needed(request: Any) -> Any:  # noqa: ANN401 - any message
    """Return the one message of a call, or raise ``STO-R010`` where none came."""
    if request is None:
        raise UsageError("STO-R010", "the call has no message")
    return request


def _too_many(what: str) -> PolicyRefusal:
    return PolicyRefusal(
        "STO-R008",
        f"the server has {what} in hand already",
        hint="ask again in a second; a client of ours does so by itself",
    )
