"""Where a shard on the network listens, and what opens it: ``connection.json``.

`stoilo learn shard` writes the file (0600): address, token and its certificate authority.
Who has it may read and change the shard. A stream is TLS 1.3 to a certificate of that
authority, always; its first frame is the token, and the answer says whether it is the one.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import msgspec

from stoilo.core import frames
from stoilo.core.errors import DeniedError, TrustError, UsageError
from stoilo.core.listen import parse_address
from stoilo.learn.store import protocol as p

CONNECTION_FILE = "connection.json"
TOKEN_BYTES = 128  # most of a first frame: all that a stranger may send
_MOST_FILE_BYTES = 64 << 10


class ShardPlace(msgspec.Struct, frozen=True):
    """A shard on the network; a secret, for it holds the token."""

    shard: str  # ``host:port``
    token: str
    ca: str  # PEM of the only authority that its certificate may come from

    def __repr__(self) -> str:
        return f"ShardPlace({self.shard})"

    def connect(self, limit_s: float) -> socket.socket:
        """Return a stream that knows who we are; no read takes longer than `limit_s`.

        Raises:
            DeniedError: ``STO-R001``, another token.
            TrustError: ``STO-T038``, somebody else is there.
            OSError: nobody is.
        """
        address = parse_address(self.shard)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=self.ca)
        plain = socket.create_connection((address.host, address.port), limit_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:  # on an error it closes `plain` itself
            stream = context.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            why = f"{self.shard} is not the shard of the file: {error.verify_message}"
            raise TrustError("STO-T038", why) from None
        try:
            self._introduce(stream)
        except BaseException:
            stream.close()
            raise
        return stream

    def _introduce(self, stream: socket.socket) -> None:
        token = self.token.encode()
        frames.send_frame(stream, token, most=TOKEN_BYTES, code="STO-T038", header=8)
        answer = p.receive_response(stream)
        if answer is None:
            raise ConnectionResetError
        if isinstance(answer, p.Refused):
            raise DeniedError(answer.code, answer.message)


def read_place(path: Path) -> ShardPlace:
    """Return what a connection file names, or raise ``STO-C045``."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_FILE_BYTES), type=ShardPlace)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            "STO-C045",
            f"{path.name} is no shard's connection file: {type(error).__name__}",
            hint="pass the connection.json in the directory of `stoilo learn shard`",
        ) from None
