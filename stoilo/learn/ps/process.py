"""The process of one shard: it alone has the file open, and may be killed at any moment.

    python -m stoilo.learn.ps.process FD

FD is one end of a socket pair: nobody else can connect, and the process ends when the other
end is closed, however the server's process ended. One request after the other is answered.
Update functions that travelled are judged by the gate again and run restricted, as tasks
are (`stoilo.sandbox`, the language layer alone: they are the project's own).
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from stoilo.core.errors import StoiloError, TrustError
from stoilo.learn.ps.loading import load_function
from stoilo.learn.ps.protocol import (
    BATCH_BYTES,
    AcceptCells,
    ApplyPush,
    Cells,
    CreateCells,
    Done,
    DropCells,
    Entry,
    Keys,
    ListKeys,
    OpenShard,
    ReadCells,
    Refused,
    Request,
    Response,
    decode_push,
    open_entries,
    receive_request,
    send_frame,
)
from stoilo.learn.ps.shards import Shard

__all__ = ["main", "serve"]

MakeShard = Callable[[OpenShard], Shard]


def open_shard(request: OpenShard) -> Shard:
    """Return the shard that a request names; raises what loading and opening do."""
    functions = [
        load_function(one.name, one.source, one.entry, one.digest)
        for one in request.functions
    ]
    return Shard(Path(request.path), functions)


def serve(connection: socket.socket, make: MakeShard = open_shard) -> None:
    """Answer requests until the other side closes."""
    shard: Shard | None = None
    try:
        while (request := receive_request(connection)) is not None:
            try:
                if isinstance(request, OpenShard) and shard is None:
                    shard = make(request)
                    response: Response = Done()
                else:
                    response = _answer(shard, request)
            except StoiloError as error:
                response = Refused(error.family, error.code, error.message)
            _reply(connection, response)
    finally:
        if shard is not None:
            shard.close()


def _reply(connection: socket.socket, response: Response) -> None:
    """Send an answer, or, when no frame holds it, that it is refused."""
    try:
        send_frame(connection, response)
    except StoiloError as error:  # raised before anything was sent
        refused = Refused(error.family, error.code, error.message)
        send_frame(connection, refused)


def _answer(shard: Shard | None, request: Request) -> Response:
    if shard is None or isinstance(request, OpenShard):
        raise TrustError("STO-T038", "a shard is opened first, and once")
    match request:
        case ListKeys():
            return Keys(list(shard.list_keys()))
        case ReadCells(keys):
            return _read(shard, keys)
        case CreateCells(entries):
            cells = open_entries(entries)
            shard.create({key: cell.value for key, cell in cells.items()})
        case ApplyPush():
            return Done(shard.apply(decode_push(request)))
        case AcceptCells(entries):
            shard.accept(open_entries(entries))
        case DropCells(keys):
            shard.drop(keys)
        case _:
            assert_never(request)
    return Done()


def _read(shard: Shard, keys: Sequence[str]) -> Cells:
    found: list[Entry] = []
    size = 0
    for key, cell in shard.read(keys).items():
        entry = Entry.of(key, cell)
        size += len(entry.body)
        if found and size > BATCH_BYTES:
            break
        found.append(entry)
    return Cells(found)


def main(arguments: Sequence[str]) -> int:
    """Serve the descriptor that the first argument names; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server's process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(arguments[0])) as connection:
        try:
            serve(connection)
        except (OSError, TrustError):  # the other side is gone, or talks nonsense
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
