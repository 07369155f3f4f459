"""The process of one shard of vectors: it alone holds its range, in memory and on disk.

    python -m stoilo.learn.methods.vectorprocess FD SIZE FOLDER

FD is one end of a socket pair: nobody else can connect, and the process ends when the other
end is closed, however the trainer's process ended. One command after the other is answered.
A frame is 8 bytes of length and a typed record (msgpack) of at most so many bytes as a range
and its command need. Commands are those of `stoilo.learn.methods.vectors.Shard`; no other
name is called.
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from stoilo.core.errors import StoiloError, TrustError
from stoilo.learn.methods.vectorfiles import VectorFiles
from stoilo.learn.methods.vectors import LocalShard
from stoilo.learn.work import State

__all__ = ["ENTRY_BYTES", "Answer", "Command", "main", "receive", "send"]

ENTRY_BYTES = 8
_ROOM = 1 << 16  # of a frame, beside the range
_LENGTH = 8
_SCALARS = frozenset({"dot", "largest", "total"})
_CHANGES = frozenset({"zero", "assign", "axpy", "drop"})


class Command(msgspec.Struct, frozen=True, array_like=True):
    """What a shard is to do: a command's name, its arguments, perhaps a range."""

    name: str
    words: list[str] = []
    factor: float = 1.0
    body: bytes = b""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What it came to; `code` is set when it came to an error."""

    value: float = 0.0
    body: bytes = b""
    code: str = ""
    message: str = ""


T = TypeVar("T", Command, Answer)


def send(connection: socket.socket, record: Command | Answer) -> int:
    """Send a record as a frame; return how many bytes that took."""
    frame = msgspec.msgpack.encode(record)
    connection.sendall(len(frame).to_bytes(_LENGTH, "big") + frame)
    return _LENGTH + len(frame)


def receive(
    connection: socket.socket, kind: type[T], size: int
) -> tuple[T | None, int]:
    """Return the next record, None at the end, and how many bytes it took.

    Args:
        connection: to read from.
        kind: of the record.
        size: entries of the shard's range, which bound the frame.

    Raises:
        TrustError: ``STO-T043`` for what is no such record.
    """
    head = _read(connection, _LENGTH)
    if not head:
        return None, 0
    length = int.from_bytes(head, "big")
    if length > size * ENTRY_BYTES + _ROOM:
        raise TrustError("STO-T043", "a shard of vectors was sent too much at once")
    try:
        record = msgspec.msgpack.decode(_read(connection, length), type=kind)
    except msgspec.MsgspecError as error:
        raise TrustError(
            "STO-T043", "a shard of vectors was sent no command"
        ) from error
    return record, _LENGTH + length


def _read(connection: socket.socket, count: int) -> bytes:
    """Return so many bytes; fewer only at the end."""
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(min(count - len(found), 1 << 20))
        if not piece:
            break
        found += piece
    return bytes(found)


class _Server:
    """A shard and its files, commanded by name."""

    def __init__(self, size: int, folder: Path) -> None:
        self.shard = LocalShard(size)
        self.files = VectorFiles(folder)

    def do(self, command: Command) -> Answer:
        """Carry a command out.

        Raises:
            StoiloError: what the command raises, or ``STO-T043`` for an unknown one.
        """
        shard, words = self.shard, command.words
        match command.name:
            case "put" | "accumulate" as name:
                getattr(shard, name)(words[0], np.frombuffer(command.body))
                return Answer()
            case "get":
                return Answer(body=shard.get(words[0]).tobytes())
            case "save":
                return Answer(value=self.files.write(shard.save().tensors))
            case "keep":
                self.files.keep(int(command.factor))
                return Answer()
            case "load":
                shard.load(State(self.files.read(int(command.factor)), {}))
                return Answer()
        return self._calculate(command)

    def _calculate(self, command: Command) -> Answer:
        words = command.words
        if command.name in _SCALARS:
            return Answer(value=getattr(self.shard, command.name)(*words))
        if command.name not in _CHANGES:
            raise TrustError("STO-T043", "a shard of vectors knows no such command")
        if command.name in {"assign", "axpy"}:
            getattr(self.shard, command.name)(words[0], command.factor, words[1])
        else:
            getattr(self.shard, command.name)(*words)
        return Answer()


def serve(connection: socket.socket, size: int, folder: Path) -> None:
    """Answer commands until the other side closes."""
    server = _Server(size, folder)
    while True:
        command, _ = receive(connection, Command, size)
        if command is None:
            return
        try:
            answer = server.do(command)
        except StoiloError as error:
            answer = Answer(code=error.code, message=error.message)
        except (LookupError, ValueError, TypeError, OSError) as error:
            answer = Answer(code="STO-T043", message=f"{type(error).__name__}: {error}")
        send(connection, answer)


def main(arguments: Sequence[str]) -> int:
    """Serve as the arguments say; return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer's process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    descriptor, size, folder = arguments
    with socket.socket(fileno=int(descriptor)) as connection:
        try:
            serve(connection, int(size), Path(folder))
        except (OSError, TrustError):  # the other side is gone, or talks nonsense
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
