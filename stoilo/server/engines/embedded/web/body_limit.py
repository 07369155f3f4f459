"""Bodies of requests, bounded in bytes, time and number before anything is done with them.

What one account may have in hand is bounded, and so is what all large bodies take together.
Strangers who made an account over the web and have helped with nothing yet get a part of
the places for large bodies, so that they cannot take them from those who have.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from stoilo.core.errors import InternalError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

DRAINED_BYTES = 16 * 1024 * 1024
DRAINED_S = 10.0
LENGTH_DIGITS = 18


@dataclass(frozen=True, slots=True)
class BodyPace:
    """How slowly a body may come."""

    pause_s: float = 20.0  # longest pause inside it, s
    bytes_per_s: int = 16 * 1024  # slowest pace, bytes/s, after a first minute
    first_s: float = 60.0  # before the pace counts

    def seconds(self, size: int) -> float:
        """Return how long a body of `size` bytes may take, s."""
        return self.first_s + size / self.bytes_per_s


async def check_announced(
    request: Request, pieces: AsyncIterator[bytes], most: int
) -> None:
    """Refuse a body that says that it is too large, before a byte of it is kept.

    Raises:
        UsageError: ``STO-E012``.
    """
    if _announced(request) > most:
        if "expect" not in request.headers:  # else the client waits for our answer
            await drain(pieces)
        raise UsageError("STO-E012", "the request is too large")


async def read_bounded(
    pieces: AsyncIterator[bytes],  # the rest of it
    most: int,  # bytes that may come
    pace: BodyPace,  # how slowly
    # stop after the piece with which so many bytes are there; 0: read all
    enough: int = 0,
) -> bytes:
    """Return what still comes of a body, at most `most` bytes.

    Raises:
        UsageError: ``STO-E012`` too large or too slow.
        InternalError: ``STO-E034`` it stopped coming.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(pace.seconds(most)):
            async for chunk in pieces:
                body += chunk
                if len(body) > most:
                    raise UsageError("STO-E012", "the request is too large")
                if 0 < enough <= len(body):
                    break
    except TimeoutError as error:
        raise UsageError("STO-E012", "the request came too slowly") from error
    return bytes(body)


async def drain(pieces: AsyncIterator[bytes]) -> None:
    """Throw away what still comes of a refused body, up to a bound.

    A connection that is closed while its client still sends is reset, and the answer is
    lost: the client would not learn that it was refused, and try again.
    """
    drained = 0
    try:
        async with asyncio.timeout(DRAINED_S):
            async for piece in pieces:
                drained += len(piece)
                if drained > DRAINED_BYTES:
                    return
    except (TimeoutError, InternalError):
        return


def _announced(request: Request) -> int:
    """Return the length that a request says it has; senseless ones are without end."""
    text = request.headers.get("content-length", "0")
    usable = text.isascii() and text.isdecimal() and len(text) <= LENGTH_DIGITS
    return int(text) if usable else 10**LENGTH_DIGITS


async def read_pieces(request: Request, pace: BodyPace) -> AsyncIterator[bytes]:
    """Yield a body's pieces; a long pause or a lost connection ends it.

    Raises:
        InternalError: ``STO-E034``.
    """
    stream = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(pace.pause_s):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise InternalError("STO-E034", "the body stopped coming") from error
        except ClientDisconnect as error:
            raise InternalError("STO-E034", "the connection was lost") from error
        if chunk:
            yield chunk


# A body of more is large
LARGE_BYTES: Final = 128 * 1024
# Large bodies that are read, or wait to be parsed: each up to some MiB
LARGE_PLACES: Final = 8
# How many of these places newcomers may have, all together
LARGE_OF_NEWCOMERS: Final = 4
# Bodies of one account's computers that are read, or wait to be parsed
BODIES_OF_ACCOUNT: Final = 64


# For the event loop: nothing here waits or is called from two threads.
class BodiesInHand:
    """The bodies that are being read or wait to be parsed, by whose they are."""

    def __init__(self) -> None:
        self._bodies: Counter[str] = Counter()
        self._large: dict[str, bool] = {}  # newcomer or not

    @contextmanager
    def body(self, account: str) -> Iterator[bool]:
        """Yield whether an account may have one more body in hand; meanwhile it has."""
        if self._bodies[account] >= BODIES_OF_ACCOUNT:
            yield False
            return
        self._bodies[account] += 1
        try:
            yield True
        finally:
            self._bodies[account] -= 1
            if not self._bodies[account]:
                del self._bodies[account]

    @contextmanager
    def large(self, account: str, *, newcomer: bool) -> Iterator[bool]:
        """Yield whether an account may have a large body in hand; it has one at most."""
        if not self._has_place(account, newcomer=newcomer):
            yield False
            return
        self._large[account] = newcomer
        try:
            yield True
        finally:
            del self._large[account]

    def _has_place(self, account: str, *, newcomer: bool) -> bool:
        if account in self._large or len(self._large) >= LARGE_PLACES:
            return False
        return not newcomer or sum(self._large.values()) < LARGE_OF_NEWCOMERS
