"""Groups that start together, between processes: `gang`'s machines over TLS and tokens."""

from __future__ import annotations

import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

from stoilo.core.errors import (
    DeniedError,
    StoiloError,
    TrustError,
    UnreachableError,
)
from stoilo.learn.coordinator.gang import Gang, Inputs, Member, Message, Out, Said
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import TokenService
from stoilo.learn.store.place import ShardPlace

_KEPT_BYTES = 4 << 30  # of staged inputs
_TICK_S = 0.1
_PARTING_S = 1.0  # in which a last word is said


class Folder(Inputs):
    """Staged inputs as files of a folder; what was unused for longest goes first.

    Nothing is flushed: who reads a file compares its digest.
    """

    def __init__(self, folder: Path, most_bytes: int = _KEPT_BYTES) -> None:
        super().__init__()
        self.folder, self._most_bytes = folder, most_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __contains__(self, digest: object) -> bool:
        name = str(digest)
        if not name.isalnum() or not (self.folder / name).is_file():
            return False
        os.utime(self.folder / name)
        return True

    def put(self, digest: str, data: bytes) -> None:
        """Keep an input; its digest was checked."""
        path, fresh = self.folder / digest, self.folder / f"{digest}.new"
        fresh.touch(mode=0o600)
        fresh.write_bytes(data)
        fresh.replace(path)
        kept = [(one, one.stat()) for one in self.folder.iterdir()]
        kept.sort(key=lambda one: one[1].st_mtime_ns, reverse=True)
        total = 0
        for one, found in kept:
            total += found.st_size
            if total > self._most_bytes and one != path:
                one.unlink()


class MemberService(TokenService):
    """A member at a port; `DIR/connection.json` opens it, `DIR/inputs` holds what came."""

    def __init__(
        self,
        data: Path,
        address: str,
        told: Callable[[str, Sequence[str]], None],
        most_lease_s: float = 60.0,
        names: tuple[str, ...] = (),
    ) -> None:
        super().__init__(data, address, names)
        self.place = self.admit_one()
        self.inputs = Folder(data / "inputs")
        self.member = Member(self.inputs, most_lease_s, told)
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._is_closed:
            time.sleep(_TICK_S)
            with self._lock:
                self.member.pass_time(time.monotonic())

    def hear(self, message: Message) -> Said:
        """Do what a coordinator asks, and say what came of it."""
        with self._lock:
            return self.member.hear(message, time.monotonic())

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Answer a coordinator until its stream ends."""
        del owner  # there is one token
        while message := p.receive(stream, Message):
            p.send_frame(stream, self.hear(cast("Message", message)))


class Meeting:
    """A group whose members are reached; use it in ``with``: its end lets everybody go.

    Args:
        places: member → where he listens.
        inputs: digest → what has to be with each.
        lease_s: after which members let go of a coordinator that is silent, s.
        staging_s: how long inputs may take, s.
        watch: told each new phase.
    """

    def __init__(
        self,
        places: Mapping[str, ShardPlace],
        inputs: Mapping[str, bytes],
        *,
        lease_s: float = 15.0,
        staging_s: float = 60.0,
        watch: Callable[[str], None] = lambda _phase: None,
    ) -> None:
        limits = {"lease_s": lease_s, "staging_s": staging_s}
        self._gang = Gang(secrets.token_hex(16), list(places), inputs, **limits)
        self._lease_s, self._watch = lease_s, watch
        self._fault: StoiloError | None = None  # that waiting does not mend
        self._changed = threading.Condition()
        self._out = {n: queue.SimpleQueue[Message | None]() for n in places}
        self._threads = [
            threading.Thread(target=self._speak, args=one, daemon=True)
            for one in places.items()
        ]
        self._threads.append(threading.Thread(target=self._keep, daemon=True))

    @property
    def group(self) -> str:
        """Its name, unique."""
        return self._gang.group

    @property
    def lost(self) -> dict[str, str]:
        """Member → why the group is none any more; empty while it stands."""
        return dict(self._gang.failed)

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            UnreachableError: ``STO-T037`` naming who is busy, silent or gone; then nobody
                is reserved, at the latest when the leases have run out.
            DeniedError: ``STO-R001``, a member does not know the token.
            TrustError: ``STO-T038``, somebody else is there.
        """
        for one in self._threads:
            one.start()
        with self._changed:
            self._send(self._gang.begin(time.monotonic()))
            self._watch(phase := "can_commit")
            while self._gang.phase not in {"started", "failed"}:
                self._changed.wait(_TICK_S)
                self._send(self._gang.pass_time(time.monotonic()))
                if self._gang.phase != phase:
                    self._watch(phase := self._gang.phase)
        if self._gang.phase == "failed":  # perhaps before it had begun
            self._close()
            if self._fault is not None:
                raise self._fault
            why = ", ".join(f"{name} {one}" for name, one in self.lost.items())
            raise UnreachableError("STO-T037", f"the group did not start: {why}")
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._send(self._gang.end())
        self._close()

    def _close(self) -> None:
        for one in self._out.values():
            one.put(None)
        for thread in self._threads[:-1]:  # those who are silent have their leases
            thread.join(_PARTING_S)

    def _keep(self) -> None:
        while self._gang.phase != "failed":
            time.sleep(self._lease_s / 3)
            with self._changed:
                self._send(self._gang.renew())

    def _send(self, out: Out) -> None:
        for name, messages in out.items():
            for message in messages:
                self._out[name].put(message)

    def _speak(self, name: str, place: ShardPlace) -> None:
        """Say to one member what there is for him; give him up when he is gone."""
        try:
            with place.connect(self._lease_s) as stream:
                while (message := self._out[name].get()) is not None:
                    p.send_frame(stream, message)
                    self._hear(name, stream)
        except (OSError, StoiloError) as error:
            with self._changed:
                if isinstance(error, DeniedError) or type(error) is TrustError:
                    self._fault = error
                self._send(self._gang.lose(name, f"is gone ({type(error).__name__})"))
                self._changed.notify()

    def _hear(self, name: str, stream: socket.socket) -> None:
        said = cast("Said | None", p.receive(stream, Said, 1 << 20))
        if said is None:
            raise ConnectionResetError
        with self._changed:
            self._send(self._gang.hear(name, said, time.monotonic()))
            self._changed.notify()
