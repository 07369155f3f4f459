"""Groups that start together, between processes: `gang`'s machines over TLS and tokens."""

from __future__ import annotations

import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

from stoilo.core.errors import StoiloError, UnreachableError
from stoilo.core.files import write_durably
from stoilo.learn.coordinator.gang import Gang, Inputs, Member, Message, Out, Said
from stoilo.learn.store import protocol as p
from stoilo.learn.store.network import TokenService
from stoilo.learn.store.place import ShardPlace

_TICK_S = 0.1
_PARTING_S = 1.0  # in which a last word is said


class Folder(Inputs):
    """Staged inputs as files of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def __contains__(self, digest: object) -> bool:
        return (self._folder / str(digest)).is_file()

    def put(self, digest: str, data: bytes) -> None:
        """Keep an input; its digest was checked."""
        write_durably(self._folder / digest, data, mode=0o600)


class MemberService(TokenService):
    """A member at a port; `DIR/connection.json` opens it, `DIR/inputs` holds what came."""

    def __init__(
        self,
        data: Path,
        address: str,
        told: Callable[[str, Sequence[str]], None],
        most_lease_s: float = 60.0,
    ) -> None:
        super().__init__(data, address)
        self.place = self.admit_one()
        self.member = Member(Folder(data / "inputs"), most_lease_s, told)
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(_TICK_S)
            with self._lock:
                self.member.pass_time(time.monotonic())

    def talk(self, stream: socket.socket, owner: str) -> None:
        """Answer a coordinator until its stream ends."""
        del owner  # there is one token
        while message := p.receive(stream, Message):
            with self._lock:
                said = self.member.hear(cast("Message", message), time.monotonic())
            p.send_frame(stream, said)


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
        self._changed = threading.Condition()
        self._out = {n: queue.SimpleQueue[Message | None]() for n in places}
        self._threads = [
            threading.Thread(target=self._speak, args=one, daemon=True)
            for one in places.items()
        ]
        self._threads.append(threading.Thread(target=self._keep, daemon=True))

    @property
    def lost(self) -> dict[str, str]:
        """Member → why the group is none any more; empty while it stands."""
        return dict(self._gang.failed)

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            UnreachableError: ``STO-T037`` naming who is busy, silent or gone; then nobody
                is reserved, at the latest when the leases have run out.
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
        if phase == "failed":
            self._close()
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
                self._send(self._gang.lose(name, f"is gone ({type(error).__name__})"))
                self._changed.notify()

    def _hear(self, name: str, stream: socket.socket) -> None:
        said = cast("Said | None", p.receive(stream, Said, 1 << 20))
        if said is None:
            raise ConnectionResetError
        with self._changed:
            self._send(self._gang.hear(name, said, time.monotonic()))
            self._changed.notify()
