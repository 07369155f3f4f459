"""The data directory of one server: who may use it, and where everything lies.

DIR/lock             held by the running server
DIR/connection.json  0600: address, token and CA for researchers on this machine
DIR/server.sqlite    tasks, attempts, outcomes, accounts
DIR/blobs/           uploaded blobs and large results
DIR/engine/          the embedded engine
DIR/audit, audit-head/  the log
DIR/keys/            development root, or a released one; online keys are the signer's
DIR/revocations/     the statement in force, and wishes to withdraw more
DIR/tls/             certificate of the gRPC interface
DIR/volunteers/N/    state of local volunteers
DIR/logs/            messages of child processes
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.files import write_durably

__all__ = [
    "CONNECTION_FILE",
    "ConnectionFile",
    "DataDir",
    "claim_directory",
    "keys_of",
    "read_connection_file",
]


CONNECTION_FILE = "connection.json"


class ConnectionFile(msgspec.Struct, frozen=True):
    """What `stoilo.connect(path)` reads.

    Attributes:
        grpc: ``host:port`` of the researchers' interface.
        http: URL of the volunteers' interface and the pages, as others reach it.
        project: BOINC master URL with its final slash, None without a project.
        token: secret; the reason for mode 0600.
        ca: PEM of the certificate authority to trust for `grpc`.
    """

    grpc: str
    http: str
    project: str | None
    token: str
    ca: str

    def write(self, place: Path) -> None:
        """Write it durably, 0600."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=2)
        write_durably(place, text + b"\n", mode=0o600)


@dataclass(frozen=True, slots=True)
class DataDir:
    """A claimed directory; closing `lock` gives it up."""

    path: Path
    lock: IO[bytes]

    @property
    def connection(self) -> Path:
        """Path of the connection file."""
        return self.path / CONNECTION_FILE

    def part(self, *names: str) -> Path:
        """Return a private directory below, made if needed."""
        folder = self.path
        for name in names:
            folder = folder / name
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def read_connection(self) -> ConnectionFile | None:
        """Return the file of an earlier start, None when there is none to use."""
        try:
            return read_connection_file(self.path)
        except UsageError:
            return None

    def write_connection(self, content: ConnectionFile) -> None:
        """Write the connection file, 0600."""
        content.write(self.connection)


def claim_directory(path: Path) -> DataDir:
    """Make and lock the data directory.

    Raises:
        InternalError: ``STO-R070`` another server holds it, or it is unusable.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = (path / "lock").open("ab")
    except OSError as error:
        raise InternalError(
            "STO-R070",
            f"the data directory cannot be used: {os.strerror(error.errno or 0)}",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise InternalError(
            "STO-R070",
            "another server runs on this data directory",
            hint="stop it, or choose another --data",
        ) from error
    return DataDir(path, lock)


def keys_of(data: Path) -> Path:
    """Return the folder of the release; raises ``STO-U004`` where no server has run."""
    keys = data / "keys"
    if not (keys / "metadata").is_dir():
        raise UsageError(
            "STO-U004",
            f"{data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    return keys


def read_connection_file(data: Path) -> ConnectionFile:
    """Return what the server wrote at its last start, or raise ``STO-U004``."""
    try:
        text = (data / CONNECTION_FILE).read_bytes()
        return msgspec.json.decode(text, type=ConnectionFile)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            "STO-U004", "the server has written no connection file yet"
        ) from error
