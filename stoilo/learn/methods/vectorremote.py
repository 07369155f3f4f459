"""A shard of vectors in a process of its own, as the trainer's process sees it.

What goes to and fro is names and scalars, but for ranges that are dealt out and gathered:
volunteers' answers, and the point of a pass. Saving moves no vector: the shard writes its
own files, and the trainer's checkpoint holds their generation.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoilo.core.errors import StoiloError, TrustError, UnreachableError, UsageError
from stoilo.learn.environment import child_environment
from stoilo.learn.methods.states import read_int
from stoilo.learn.methods.vectorprocess import Answer, Command, receive, send
from stoilo.learn.work import State

__all__ = ["ProcessShard"]

_MODULE = "stoilo.learn.methods.vectorprocess"
_END_S = 60.0
LIMIT_S = 600.0
"""A process that does not answer for so long is given up."""
_RAISED: dict[str, type[StoiloError]] = {
    "STO-T041": UsageError,
    "STO-T042": UnreachableError,
}


class ProcessShard:
    """See `stoilo.learn.methods.vectors.Shard` for the commands.

    Attributes:
        size: entries of its range.
        moved_bytes: sent and received so far.
        pid: of its process, which ends with `close` or when this process does.
    """

    def __init__(self, size: int, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", "-m", _MODULE, str(number), str(size)]
            process = subprocess.Popen(
                [*command, str(folder)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
        ours.settimeout(LIMIT_S)
        self._generation = 0
        self.size, self.moved_bytes, self.pid = size, 0, process.pid
        self._connection = ours
        self._end = weakref.finalize(self, _end, ours, process)

    def put(self, name: str, values: NDArray[np.float64]) -> None:
        """Set a vector's range."""
        self._send_range("put", name, values)

    def get(self, name: str) -> NDArray[np.float64]:
        """Return a vector's range: for snapshots only."""
        found = np.frombuffer(self._ask(Command("get", [name])).body)
        if found.shape != (self.size,):
            raise TrustError("STO-T043", f"a shard gave {found.size} entries of {name}")
        return found

    def accumulate(self, name: str, values: NDArray[np.float64]) -> None:
        """Add what a volunteer sent to a vector's range."""
        self._send_range("accumulate", name, values)

    def zero(self, name: str) -> None:
        """Set a vector to zeros."""
        self._ask(Command("zero", [name]))

    def assign(self, target: str, factor: float, source: str) -> None:
        """``target = factor * source``."""
        self._ask(Command("assign", [target, source], factor))

    def axpy(self, target: str, factor: float, source: str) -> None:
        """``target = target + factor * source``."""
        self._ask(Command("axpy", [target, source], factor))

    def dot(self, one: str, other: str) -> float:
        """Return this range's part of a scalar product."""
        return self._ask(Command("dot", [one, other])).value

    def largest(self, name: str) -> float:
        """Return the largest absolute entry of this range."""
        return self._ask(Command("largest", [name])).value

    def total(self, name: str) -> float:
        """Return the sum of absolute entries of this range."""
        return self._ask(Command("total", [name])).value

    def drop(self, name: str) -> None:
        """Forget a vector, if it is there."""
        self._ask(Command("drop", [name]))

    def save(self) -> State:
        """Return the generation that its files now have."""
        self._generation = int(self._ask(Command("save")).value)
        return State({}, {"generation": self._generation})

    def keep(self) -> None:
        """Let the generation that was saved last stay, however many come after it."""
        self._ask(Command("keep", factor=float(self._generation)))

    def load(self, state: State) -> None:
        """Go back to a generation of its files."""
        number = read_int(state.plain, "generation")
        self._ask(Command("load", factor=float(number)))
        self._generation = number

    def close(self) -> None:
        """End the process."""
        self._end()

    def _send_range(self, command: str, name: str, values: NDArray[np.float64]) -> None:
        body = np.ascontiguousarray(values, np.float64).tobytes()
        self._ask(Command(command, [name], body=body))

    def _ask(self, command: Command) -> Answer:
        try:
            self.moved_bytes += send(self._connection, command)
            answer, length = receive(self._connection, Answer, self.size)
        except OSError as error:
            self._connection.close()  # half an answer may be on the way
            raise _dead() from error
        if answer is None:
            raise _dead()
        self.moved_bytes += length
        if answer.code:
            raise _RAISED.get(answer.code, TrustError)(answer.code, answer.message)
        return answer


def _dead() -> UnreachableError:
    return UnreachableError(
        "STO-T042",
        "the process of a shard of vectors has ended, or does not answer",
        hint="start the training again: it goes on from its checkpoint",
    )


def _end(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Close the line and wait for the process, which ends by that."""
    connection.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
