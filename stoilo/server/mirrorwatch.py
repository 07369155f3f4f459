"""Checking the mirrors: each is asked for its index and for pieces that we know.

A piece is some bytes at a random place of a random file that both sides have, so a check
costs little whatever the files' size, and a mirror cannot know which bytes it must not
falsify. It can still send others to other hosts: nothing rests on a check but who is sent
where.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import urllib3

from stoilo.core.errors import StoiloError, TrustError, UnreachableError
from stoilo.server.mirror.intime import pool_in_time
from stoilo.server.mirror.listing import INDEX, LISTING_BYTES, parse_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.server.engines.embedded.wire.mirrored import MirrorDesk
    from stoilo.server.engines.mirrorboard import MirrorBoard
    from stoilo.server.engines.mirrors import Mirror

__all__ = ["CheckPace", "MirrorWatch", "check_mirror"]

log = logging.getLogger(__name__)

CHUNK: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class CheckPace:
    """How a mirror is checked.

    Attributes:
        seconds: longest time of the whole check, s; a slower mirror is out.
        pieces: how many are compared.
        piece_bytes: of each.
        idle_s: longest pause between two looks at who is due, s.
        stop_s: longest wait for the check in progress at the end, s.
    """

    seconds: float = 20.0
    pieces: int = 4
    piece_bytes: int = 64 * 1024
    idle_s: float = 5.0
    stop_s: float = 2.0


class MirrorWatch:
    """A thread that keeps a board's health up to date; without mirrors it does nothing.

    Args:
        board: whose mirrors are checked.
        desk: what they should have.
        pace: of the checks.
    """

    def __init__(
        self, board: MirrorBoard, desk: MirrorDesk, pace: CheckPace | None = None
    ) -> None:
        self._board = board
        self._desk = desk
        self._pace = pace or CheckPace()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        if self._board.health:
            self._thread = threading.Thread(
                target=self._run, name="stoilo-mirrors", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End; a check that takes longer than `CheckPace.stop_s` is left behind."""
        self._stopping = True
        self._board.hurried.set()
        if self._thread is not None:
            self._thread.join(self._pace.stop_s)

    def check_due(self) -> None:
        """Check the mirrors whose time has come, one after the other."""
        for mirror in self._board.due():
            if not self._stopping:
                self._check(mirror)

    def _run(self) -> None:
        """Check until stopped; trouble of the database only slows it down."""
        while not self._stopping:
            try:
                self.check_due()
            except StoiloError as error:
                log.warning("the mirrors were not checked: %s", error)
            self._board.hurried.wait(self._pace.idle_s)
            self._board.hurried.clear()

    def _check(self, mirror: Mirror) -> None:
        """Check one mirror and note what came of it."""
        before = self._board.health[mirror]
        known = self._desk.paths()
        try:
            holds = check_mirror(mirror.url, known, self._pace)
        except (TrustError, UnreachableError) as error:
            self._board.found_ill(mirror, error.message)
            if not before.failures:
                log.warning("mirror %s is out: %s", mirror.url, error.message)
            return
        self._board.found_well(mirror, holds & known.keys())
        if before.why:
            log.info("mirror %s is in use, %d files", mirror.url, len(holds))


def check_mirror(
    url: str,
    known: dict[str, Path],
    pace: CheckPace,
    clock: Callable[[], float] = time.monotonic,
) -> frozenset[str]:
    """Return the digests of a mirror's index, after some pieces were as they should be.

    Raises:
        UnreachableError: ``STO-B056`` dead or too slow.
        TrustError: ``STO-B053`` no index, or wrong bytes.
    """
    until = clock() + pace.seconds
    with pool_in_time(pace.seconds, lambda: until - clock()) as pool:
        index = _get(pool, url + INDEX, {}, LISTING_BYTES, until, clock)
        holds = parse_index(index)
        shared = sorted(holds & known.keys())
        draw = random.SystemRandom()
        for digest in draw.sample(shared, min(pace.pieces, len(shared))):
            piece = _piece(known[digest], pace.piece_bytes, draw)
            if piece is None:
                continue  # the project has just dropped it
            start, expected = piece
            wanted = {"Range": f"bytes={start}-{start + len(expected) - 1}"}
            got = _get(pool, url + digest, wanted, len(expected), until, clock)
            if got != expected:
                raise TrustError("STO-B053", f"wrong bytes of {digest}")
    return holds


def _piece(path: Path, most: int, draw: random.Random) -> tuple[int, bytes] | None:
    """Return a place in a file and the bytes there; None when it is gone."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            start = stream.seek(draw.randrange(max(1, size - most + 1)))
            return start, stream.read(most)
    except OSError:
        return None


def _get(
    pool: urllib3.PoolManager,
    url: str,
    headers: dict[str, str],
    most: int,
    until: float,
    clock: Callable[[], float],
) -> bytes:
    """Return a body of at most `most` bytes that came in time."""
    data = b""
    try:
        response = pool.request(
            "GET", url, headers=headers, preload_content=False, redirect=False
        )
        wanted = HTTPStatus.PARTIAL_CONTENT if headers else HTTPStatus.OK
        if response.status != wanted:
            response.close()
            raise UnreachableError("STO-B056", f"HTTP {response.status} of {url}")
        for chunk in response.stream(CHUNK, decode_content=False):
            data += chunk
            if len(data) > most:
                response.close()
                raise TrustError("STO-B053", f"more bytes than asked for of {url}")
            if clock() > until:
                response.close()
                raise UnreachableError("STO-B056", f"too slow: {url}")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if clock() > until:
            raise UnreachableError("STO-B056", f"too slow: {url}") from error
        kind = type(error).__name__
        raise UnreachableError("STO-B056", f"no answer ({kind}) of {url}") from error
    return data
