"""The server's side of the signer: typed calls over its socket, and keeping it alive.

Every request may be sent twice without harm (signing is deterministic and checkpoints are
remembered), so a broken connection is opened again and the request repeated until the
deadline. Thread-safe; one connection, used in turns.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from stoilo.audit.format.merkle import consistency_proof, parse_checkpoint
from stoilo.audit.format.tiles import Tile, TileNodes, render_tile_path
from stoilo.core.errors import InternalError, StoiloError, TrustError, UnreachableError
from stoilo.core.rate_limit import Backoff
from stoilo.signer.process.protocol import (
    MAX_BATCH,
    Admission,
    CheckpointSigned,
    EnvelopesSigned,
    LastRevocation,
    Ping,
    Pong,
    Refreshed,
    RefreshMetadata,
    Refused,
    Response,
    RevocationSigned,
    SignAdmissions,
    SignCheckpoint,
    Signed,
    SignRevocation,
    receive_response,
    send_record,
    unix_address,
)

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


class SignerClient:
    """Asks the signer at `socket_path`; a context manager."""

    def __init__(
        self,
        socket_path: Path,
        *,
        timeout_s: float = 15.0,
        revive: Callable[[], None] | None = None,
    ) -> None:
        """Remember where the signer is; connects when first asked.

        One call may take `timeout_s`, reconnecting included; `revive` is called before
        each new connection after a broken one (`SignerProcess.ensure`).
        """
        self._revive = revive
        self._path = socket_path
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def sign_admission(self, statement: bytes, proof: bytes) -> bytes:
        """Return the DSSE envelope over `statement`; raises the refusal's code."""
        (answer,) = self.sign_admissions([(statement, proof)])
        if isinstance(answer, StoiloError):
            raise answer
        return answer

    def sign_admissions(
        self, admissions: Sequence[tuple[bytes, bytes]]
    ) -> list[bytes | StoiloError]:
        """Return an envelope or a refusal for each (statement, proof), in order."""
        answers: list[bytes | StoiloError] = []
        for start in range(0, len(admissions), MAX_BATCH):
            batch = tuple(
                Admission(statement, proof)
                for statement, proof in admissions[start : start + MAX_BATCH]
            )
            signed = self._ask(SignAdmissions(batch), EnvelopesSigned)
            if len(signed.answers) != len(batch):
                raise TrustError("STO-K022", "the signer left a request unanswered")
            answers += [
                one.envelope
                if isinstance(one, Signed)
                else TrustError(one.code, one.message)
                for one in signed.answers
            ]
        return answers

    def sign_checkpoint(self, body: bytes, consistency: Sequence[bytes] = ()) -> bytes:
        """Return the signed note over a checkpoint's `body`.

        Args:
            body: origin, size and root.
            consistency: proof from the last checkpoint signed; see `CheckpointSigner`.

        Raises:
            TrustError: STO-K026 it would go back or fork, or is of another log.
        """
        request = SignCheckpoint(body, tuple(consistency))
        return self._ask(request, CheckpointSigned).note

    def sign_revocation(self, statement: bytes, proof: bytes) -> bytes:
        """Return the DSSE envelope over a logged revocation statement.

        Raises ``STO-A071`` and the log's codes, ``STO-A083``.
        """
        request = SignRevocation(statement, proof)
        return self._ask(request, RevocationSigned).envelope

    def last_revocation(self) -> tuple[bytes, bytes]:
        """Return the newest statement signed and its envelope; b"" before any."""
        answer = self._ask(LastRevocation(), RevocationSigned)
        return answer.statement, answer.envelope

    def refresh_metadata(self) -> int:
        """Have snapshot and timestamp signed where due; return when they expire."""
        return self._ask(RefreshMetadata(), Refreshed).expires

    def ping(self) -> Pong:
        """Return who answers."""
        return self._ask(Ping(), Pong)

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self.close()

    def _ask(self, request: msgspec.Struct, kind: type[_Answer]) -> _Answer:
        """Send `request` and return its answer, or raise what the signer refused."""
        with self._lock:
            response = self._exchange(request)
        if isinstance(response, Refused):
            raise TrustError(response.code, response.message)
        if not isinstance(response, kind):
            raise TrustError("STO-K022", "the signer answered another question")
        return response

    def _exchange(self, request: msgspec.Struct) -> Response:
        """Send and receive, over a new connection as often as needed."""
        deadline = time.monotonic() + self._timeout_s
        pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=0)
        pause_s = pauses.next_pause()
        while True:
            try:
                return self._exchange_once(request, deadline)
            except (OSError, EOFError, TrustError) as error:
                # What was sent may have been signed: asking again gives
                # the same answer.
                self._drop()
                if isinstance(error, TrustError) and error.code != "STO-K020":
                    raise
                if time.monotonic() + pause_s > deadline:
                    raise UnreachableError(
                        "STO-K020", "the signer does not answer"
                    ) from error
                time.sleep(pause_s)
                # Whoever started the signer can start it again.
                if self._revive is not None:
                    self._revive()
                pause_s = pauses.next_pause()

    def _exchange_once(self, request: msgspec.Struct, deadline: float) -> Response:
        connection = self._connection or self._connect()
        self._connection = connection
        connection.settimeout(max(deadline - time.monotonic(), FIRST_PAUSE_S))
        send_record(connection, request)
        response = receive_response(connection)
        if response is None:
            raise EOFError
        return response

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout_s)
        try:
            with unix_address(self._path) as address:
                connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class CheckpointSigner:
    """Callable of `audit.sequencer.Sequencer.open`: checkpoint body → signed note."""

    def __init__(self, client: SignerClient, log_directory: Path) -> None:
        """Remember whom to ask."""
        self._client = client
        self._nodes = TileNodes(partial(_read_tile, log_directory))

    def __call__(self, body: bytes) -> bytes:
        """Return the signed note.

        Raises ``STO-K026`` from the signer, ``STO-L032`` a tile is
        missing; ``STO-K020``.
        """
        new = parse_checkpoint(body).size
        old = self._client.ping().size
        proof: list[bytes] = []
        # Nothing to prove for the first leaves, or for a tree signed before.
        if 0 < old < new:
            proof = consistency_proof(
                old, new, lambda level, index: self._nodes.node(level, index, new)
            )
        return self._client.sign_checkpoint(body, proof)


def _read_tile(directory: Path, tile: Tile) -> bytes | None:
    """Return a published tile's bytes, None when it is absent."""
    try:
        return (directory / render_tile_path(tile)).read_bytes()
    except FileNotFoundError:
        return None


START_S: Final = 20.0
STOP_S: Final = 5.0
PAUSE_S: Final = 0.05


class SignerProcess:
    """One signer as a child process that never outlives this one; a context manager."""

    def __init__(self, directory: Path, socket_path: Path) -> None:
        """Remember where keys and socket are; `start` starts."""
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

    def __exit__(self, *error: object) -> None:
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
                # An older signer may still answer on this socket while it ends.
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
