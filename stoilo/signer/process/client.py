"""The server's side of the signer's socket: typed calls that survive a restarted signer.

Every request may be sent twice without harm (signing is deterministic and checkpoints are
remembered), so a broken connection is opened again and the request repeated until the
deadline. Thread-safe; one connection, used in turns.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from stoilo.core.errors import StoiloError, TrustError, UnreachableError
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

        Args:
            socket_path: the signer's unix socket.
            timeout_s: how long one call may take, reconnecting included.
            revive: called before each new connection after a broken one, for example
                `SignerProcess.ensure`.
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
            answers += [_open_answer(answer) for answer in signed.answers]
        return answers

    def sign_checkpoint(self, body: bytes, consistency: Sequence[bytes] = ()) -> bytes:
        """Return the signed note over a checkpoint's `body`.

        Args:
            body: origin, size and root.
            consistency: proof from the last checkpoint signed; see `CheckpointSigner`.

        Raises:
            TrustError: STO-K025 it would go back, STO-K026 it would fork, STO-K027.
        """
        request = SignCheckpoint(body, tuple(consistency))
        return self._ask(request, CheckpointSigned).note

    def sign_revocation(self, statement: bytes, proof: bytes) -> bytes:
        """Return the DSSE envelope over a logged revocation statement.

        Raises:
            TrustError: STO-A073 and the log's codes, STO-A083 to STO-A085.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """Send `request` over the present connection and read one answer."""
        connection = self._connection or self._connect()
        self._connection = connection
        connection.settimeout(max(deadline - time.monotonic(), FIRST_PAUSE_S))
        send_record(connection, request)
        response = receive_response(connection)
        if response is None:
            raise EOFError
        return response

    def _connect(self) -> socket.socket:
        """Return a new connection."""
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
        """Forget the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _open_answer(answer: Signed | Refused) -> bytes | StoiloError:
    """Return one admission's envelope, or its refusal as an error."""
    if isinstance(answer, Signed):
        return answer.envelope
    return TrustError(answer.code, answer.message)
