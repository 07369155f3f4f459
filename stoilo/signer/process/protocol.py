"""What may be asked of the signer: a closed set of typed requests, in bounded frames.

A frame is four bytes of length (big-endian) and a JSON object whose ``type`` names one of
the records below. Nothing here signs free bytes. Trust: both sides bound and check what
they read; the signer's caller may be a thief who has taken the server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.frames import receive_frame, send_frame
from stoilo.core.types import BOUNDS

MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
MAX_BATCH: Final = 256


class _Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """One of the things that may be asked; its class's name is its ``type``."""


class Admission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One statement's bytes and the proof that the log holds its leaf."""

    statement: Annotated[bytes, msgspec.Meta(max_length=BOUNDS.statement_bytes)]
    proof: Annotated[bytes, msgspec.Meta(max_length=BOUNDS.proof_bytes)]


class SignAdmissions(_Request, frozen=True):
    """Sign each admission whose proof, epoch and rate hold."""

    admissions: Annotated[
        tuple[Admission, ...], msgspec.Meta(min_length=1, max_length=MAX_BATCH)
    ]


class SignCheckpoint(_Request, frozen=True):
    """Sign a checkpoint's body; `consistency` proves it extends the last one signed."""

    body: Annotated[bytes, msgspec.Meta(max_length=1024)]
    consistency: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=64)] = ()


class SignRevocation(_Request, frozen=True):
    """Sign a logged revocation statement that takes nothing back."""

    statement: Annotated[bytes, msgspec.Meta(max_length=BOUNDS.statement_bytes)]
    proof: Annotated[bytes, msgspec.Meta(max_length=BOUNDS.proof_bytes)]


class LastRevocation(_Request, frozen=True):
    """Say which revocation statement was signed last."""


class RefreshMetadata(_Request, frozen=True):
    """Sign snapshot and timestamp again where they are due."""


class Ping(_Request, frozen=True):
    """Say who you are."""


class Signed(msgspec.Struct, frozen=True, tag=True):
    """One signed admission."""

    envelope: bytes


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A refusal, with a stable code."""

    code: str
    message: str


class EnvelopesSigned(msgspec.Struct, frozen=True, tag=True):
    """Answers to `SignAdmissions`, in order."""

    answers: tuple[Signed | Refused, ...]


class CheckpointSigned(msgspec.Struct, frozen=True, tag=True):
    """The signed note."""

    note: bytes


class RevocationSigned(msgspec.Struct, frozen=True, tag=True):
    """The newest statement signed and its envelope; both empty before the first."""

    statement: bytes
    envelope: bytes


class Refreshed(msgspec.Struct, frozen=True, tag=True):
    """The release is fresh; `expires` in Unix seconds."""

    expires: int


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Who answers: the log's verifier key and the newest size signed."""

    log_vkey: str
    size: int
    pid: int


Request = (
    SignAdmissions
    | SignCheckpoint
    | SignRevocation
    | LastRevocation
    | RefreshMetadata
    | Ping
)
Response = (
    EnvelopesSigned | CheckpointSigned | RevocationSigned | Refreshed | Pong | Refused
)

_REQUEST = msgspec.json.Decoder(Request)
_RESPONSE = msgspec.json.Decoder(Response)


def send_record(connection: socket.socket, record: msgspec.Struct) -> None:
    """Send one record; raises OSError when the other side is gone."""
    body = msgspec.json.encode(record)
    send_frame(connection, body, most=MAX_FRAME_BYTES, code="STO-K022")


def receive_request(connection: socket.socket) -> Request | None:
    """Return the next request (hostile), None when the caller has closed.

    Raises ``STO-K022`` for anything that is no request, or too large.
    """
    body = receive_frame(connection, most=MAX_FRAME_BYTES, code="STO-K022")
    try:
        return None if body is None else _REQUEST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TrustError("STO-K022", f"not a request: {error}") from error


def receive_response(connection: socket.socket) -> Response | None:
    """Return the next answer, None when the signer has closed; raises ``STO-K022``.

    An answer that is cut off is ``STO-K020``, as when none came: the signer was killed.
    """
    body = receive_frame(connection, most=MAX_FRAME_BYTES, code="STO-K020")
    try:
        return None if body is None else _RESPONSE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TrustError("STO-K022", f"not an answer: {error}") from error


MAX_ADDRESS_BYTES: Final = 107  # of a unix socket, by the kernel


@contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """Yield an address for `path`, by way of its directory's descriptor when long."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    # A descriptor of the directory makes a short name for a long place.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
