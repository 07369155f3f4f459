"""A member of cells: a port behind TLS and token, and a worker process while a group stands.

DIR/connection.json  0600: opens the port; the trainer's copy makes him the member's master
DIR/inputs/          what came with orders, by digest
DIR/tls/             certificate of the port

The member grants leases (`stoilo.learn.coordinator.gang`): a trainer that is gone, or silent
for longer than his lease, loses it, and the worker is killed, whatever it computes. A group
that forms anew gets a new worker: no half-broken link outlives its group.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from msgspec.structs import replace

from stoilo.core.errors import UsageError
from stoilo.core.listen import parse_address
from stoilo.learn.cells import protocol as c
from stoilo.learn.coordinator.gang import Message
from stoilo.learn.coordinator.meeting import MemberService
from stoilo.learn.store import protocol as p
from stoilo.learn.store.client import child_environment

# -P: the current folder is not among those of modules, anybody's files may lie there.
PROGRAM: Final = (sys.executable, "-P", "-m", "stoilo.learn.cells.worker")
_MOST_LEASE_S = 60.0
Answer = c.Done | c.Failed | p.Refused


class CellMember(MemberService):
    """A member at a port.

    Args:
        data: its folder.
        address: where it listens, ``host:port``; its links listen on that host, too.
        names: more of the machine's, for TLS; the first is how others reach it.
        peers: the only group it may be in, by rank; any group when empty.
        threads: that its worker computes with; as many as the machine has when 0.
        program: of the worker.
    """

    def __init__(
        self,
        data: Path,
        address: str,
        *,
        names: tuple[str, ...] = (),
        peers: Sequence[str] = (),
        threads: int = 0,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._peers, self._program = list(peers), tuple(program)
        self._environment = child_environment()
        if threads:
            self._environment.setdefault("OMP_NUM_THREADS", str(threads))
        self._worker: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None  # to the worker
        self._asking = threading.Lock()
        super().__init__(data, address, self._tell, _MOST_LEASE_S, names)

    @property
    def pid(self) -> int:
        """The worker's; 0 when there is none."""
        return 0 if self._worker is None else self._worker.pid

    def _tell(self, group: str, ready: Sequence[str]) -> None:
        del group
        self._stop()
        if self.place.shard in ready:
            self._start(ready)

    def _start(self, ready: Sequence[str]) -> None:
        """Start the worker; `ready`: addresses of all members, by rank."""
        line, theirs = socket.socketpair()
        rank = str(ready.index(self.place.shard))
        hosts = [parse_address(one).host for one in ready]
        with theirs:
            words = str(theirs.fileno()), str(self.inputs.folder), rank, *hosts
            self._worker = subprocess.Popen(
                [*self._program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=self._environment,
                pass_fds=[theirs.fileno()],
            )
        self._line = line

    def _stop(self) -> None:
        if self._worker is not None and self._line is not None:
            self._worker.kill()
            self._worker.wait()
            self._line.close()
        self._worker = self._line = None

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Answer a trainer until his stream ends: `gang`'s messages, and a cell's work."""
        del owner  # there is one token
        kinds = Message | c.Open | c.Join | c.Execute
        while message := p.receive(stream, kinds):
            if isinstance(message, c.Work):
                p.send_frame(stream, self._pass_on(message))
            else:
                p.send_frame(stream, self.hear(cast("Message", message)))

    def _pass_on(self, message: c.Work) -> Answer:
        """Return what the worker answers; raises OSError when it is gone."""
        line = self._line
        if line is None or message.group != self.member.group:
            raise ConnectionResetError
        with self._asking:
            p.send_frame(line, message)
            answer = cast("Answer | None", p.receive(line, Answer))
        if answer is None:
            raise ConnectionResetError
        return (
            replace(answer, peers=self._peers) if isinstance(answer, c.Done) else answer
        )

    def close(self) -> None:
        """Take no more streams and end the worker."""
        super().close()
        with self._lock:
            self._stop()


def check_private(addresses: Sequence[str], *, is_private: bool) -> None:
    """Refuse links beyond this machine unless it was said that their network is private.

    Raises:
        UsageError: ``STO-R090``.
    """
    far = [one for one in addresses if not parse_address(one).loopback]
    if far and not is_private:
        raise UsageError(
            "STO-R090",
            f"links to {far[0]} are not encrypted: gloo has no TLS",
            hint="use a network that only the cell's machines are on (a cable, a VPN) "
            "and say so with --private-network, or loopback addresses",
        )
