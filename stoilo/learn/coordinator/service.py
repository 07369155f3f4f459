"""What is asked of a coordinator, and the port at which it answers.

Who has a token of the token file gets these commands, each for his own trainings alone. All
that comes is bounded before it is parsed: frames, sheets, pieces of blobs.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from pathlib import Path
from typing import Annotated, cast

import msgspec

from stoilo.core.errors import StoiloError, UsageError
from stoilo.core.files import read_bounded
from stoilo.core.types import BOUNDS
from stoilo.learn.coordinator.kept import Progress
from stoilo.learn.coordinator.running import Coordinator
from stoilo.learn.coordinator.sheet import Digest
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import TokenService
from stoilo.learn.store.place import TOKEN_BYTES
from stoilo.learn.store.values import encode

PIECE_BYTES = 8 << 20
MOST_BYTES = 16 << 20  # of a request
SHEET_BYTES = 8 << 20
STREAMS = 64  # at a time, whoever has them
IDLE_S = 600.0  # a stream that is silent for so long is closed
_OWNER = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LEAST_TOKEN = 20  # characters


class Offered(msgspec.Struct, frozen=True):
    """A training's id, and the blobs that are not there yet."""

    run: str
    missing: list[str]


class Offer(p.Command[Offered], frozen=True, tag="offer"):
    """A sheet."""

    sheet: Annotated[bytes, msgspec.Meta(max_length=SHEET_BYTES)]


class PutPiece(p.Command[None], frozen=True, tag="put"):
    """A piece of a blob, in order."""

    run: str
    digest: Digest
    offset: Annotated[int, msgspec.Meta(ge=0)]
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)]
    is_last: bool


class Start(p.Command[Progress], frozen=True, tag="start"):
    """Begin, with this token at the server."""

    run: str
    token: Annotated[str, msgspec.Meta(min_length=1, max_length=BOUNDS.token_chars)]


class Ask(p.Command[Progress], frozen=True, tag="ask"):
    """Say how far it is, after one of stop and forget."""

    run: str
    then: str = ""


class ListRuns(p.Command[dict[str, Progress]], frozen=True, tag="list"):
    """Give all by their ids."""


class Fetch(p.Command[bytes], frozen=True, tag="fetch"):
    """Give a piece of a file; an empty one at its end."""

    run: str
    name: Annotated[str, msgspec.Meta(max_length=64)]
    offset: Annotated[int, msgspec.Meta(ge=0)]


Request = Offer | PutPiece | Start | Ask | ListRuns | Fetch


class CoordinatorService(TokenService):
    """The port; commands are carried out in the coordinator's event loop."""

    def __init__(
        self, data: Path, address: str, names: tuple[str, ...], tokens: Path
    ) -> None:
        """Bind the port and write a connection file for each name of the token file.

        Raises:
            UsageError: ``STO-C045``, the token file is none; else as `TokenService`.
        """
        known = read_tokens(tokens)
        super().__init__(data, address, names)
        folder = data / "connections"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.files = {n: folder / f"{n}.json" for n in known}
        for owner, token in known.items():
            self.admit(owner, token, self.files[owner])
        for stale in {*folder.iterdir()} - {*self.files.values()}:
            stale.unlink()
        self._streams = threading.BoundedSemaphore(STREAMS)

    def serve(self, coordinator: Coordinator, loop: asyncio.AbstractEventLoop) -> None:
        """Answer until the listener is closed; for a thread beside the loop's."""
        self._coordinator, self._loop = coordinator, loop
        self.run()

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Answer the owner of a token until his stream ends."""
        if not self._streams.acquire(blocking=False):
            return
        try:
            stream.settimeout(IDLE_S)
            while request := p.receive(stream, Request, MOST_BYTES):
                p.send_frame(stream, self._respond(owner, cast("Request", request)))
        finally:
            self._streams.release()

    def _respond(self, owner: str, request: Request) -> p.Response:
        work = asyncio.run_coroutine_threadsafe(self._do(owner, request), self._loop)
        try:
            return p.Answer(encode(work.result()))
        except StoiloError as error:
            return p.Refused(error.family, error.code, error.message)

    async def _do(self, owner: str, request: Request) -> object:
        known = self._coordinator
        match request:
            case Offer(sheet):
                run = known.offer(owner, sheet)
                return Offered(run.id, run.missing())
            case ListRuns():
                return known.list(owner)
        run = known.find(owner, request.run)
        match request:
            case PutPiece(_, digest, offset, data, is_last):
                known.check_disk(owner, len(data))
                await asyncio.to_thread(run.put, digest, offset, data, is_last=is_last)
                return None
            case Fetch(_, name, offset):
                return await asyncio.to_thread(read_piece, run.file(name), offset)
            case Start(_, token):
                known.start(run, token)
            case Ask(_, then):
                act = {"stop": known.stop, "forget": known.forget}.get(then)
                if act is not None:
                    act(run)
        return run.progress


def read_piece(path: Path, offset: int) -> bytes:
    """Return at most `PIECE_BYTES` of a file; nothing of one that is not there."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)
    except FileNotFoundError:
        return b""


def read_tokens(path: Path) -> dict[str, str]:
    """Return name → token of a file of lines ``NAME TOKEN``.

    Raises:
        UsageError: ``STO-C045``.
    """
    try:
        rows = [
            line.split() for line in read_bounded(path, 1 << 20).decode().split("\n")
        ]
        found: dict[str, str] = dict(filter(None, rows))
        good = all(_OWNER.fullmatch(name) for name in found) and all(
            _LEAST_TOKEN <= len(t.encode()) <= TOKEN_BYTES for t in found.values()
        )
        if found and good and len({*found.values()}) == len([*filter(None, rows)]):
            return found
    except (OSError, ValueError):
        pass
    raise UsageError(
        "STO-C045",
        f"{path.name} is no token file",
        hint=f"lines of a name and a token of {_LEAST_TOKEN} characters or more",
    )
