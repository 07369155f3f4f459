"""Starting the signer beside a server, and starting it again when it dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from stoilo.core.errors import InternalError, StoiloError
from stoilo.signer.process.client import SignerClient
from stoilo.signer.process.protocol import Pong

START_S: Final = 20.0
STOP_S: Final = 5.0
PAUSE_S: Final = 0.05


class ForeignSigner:
    """A signer that somebody else starts and keeps alive (a unit of its own user)."""

    def ensure(self) -> None:
        """Do nothing: who started it starts it again."""


class SignerProcess:
    """One signer as a child process that never outlives this one; a context manager."""

    def __init__(self, directory: Path, socket_path: Path) -> None:
        """Remember where keys and socket are; `start` starts.

        Args:
            directory: made by `stoilo.signer.development.root`.
            socket_path: where the signer will listen.
        """
        self._directory = directory
        self._socket = socket_path
        self._child: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The child's process id, 0 when there is none."""
        return 0 if self._child is None else self._child.pid

    def start(self) -> Pong:
        """Start the signer and wait until it answers; raises ``STO-K020``."""
        with self._lock:
            return self._start()

    def ensure(self) -> None:
        """Start the signer again if it has died; `SignerClient` can call this."""
        with self._lock:
            if self._child is None or self._child.poll() is not None:
                self._start()

    def stop(self) -> None:
        """End the signer."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Self:
        """Start the signer."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the signer."""
        self.stop()

    def _start(self) -> Pong:
        """Start the child as often as needed: a dying one may still hold the lock."""
        deadline = time.monotonic() + START_S
        while True:
            self._spawn()
            answer = self._wait(deadline)
            if answer is not None:
                return answer
            self._stop()
            if time.monotonic() > deadline:
                raise InternalError("STO-K020", "the signer process did not start")
            time.sleep(PAUSE_S)

    def _spawn(self) -> None:
        """Start the child with a pipe whose closing ends it."""
        self._stop()
        # The kernel closes our end when this process dies, however it dies.
        theirs, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "stoilo.signer.process"]
        command += ["--keys", str(self._directory), "--socket", str(self._socket)]
        try:
            self._child = subprocess.Popen(
                [*command, "--lifeline", str(theirs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)

    def _wait(self, deadline: float) -> Pong | None:
        """Return the child's first answer, None when it ended."""
        with SignerClient(self._socket, timeout_s=PAUSE_S) as client:
            while time.monotonic() < deadline:
                if self._child is None or self._child.poll() is not None:
                    return None
                try:
                    answer = client.ping()
                except StoiloError:
                    continue
                # An older signer may still answer on this socket while
                # it ends.
                if answer.pid == self._child.pid:
                    return answer
                client.close()
                time.sleep(PAUSE_S)
        return None

    def _stop(self) -> None:
        """End and reap the child, by signal and then by force."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
