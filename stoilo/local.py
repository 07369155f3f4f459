"""`stoilo.local`: a whole project on this machine, for as long as a block runs."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from stoilo.client.connection import Connection
    from stoilo.client.sync import SyncConnection
    from stoilo.testing.deployment import Deployment

__all__ = ["LocalProject", "local"]

START_S = 60.0
_NEEDED = {
    "cryptography": "server",
    "sqlalchemy": "server",
    "starlette": "server",
    "tuf": "server",
    "uvicorn": "server",
}


class LocalProject:
    """An embedded server and volunteers in child processes, and a connection to them.

    Use it in ``async with`` (gives a `Connection`) or ``with`` (a `SyncConnection`).
    Sandbox, gate, log and signatures are the real ones.
    """

    def __init__(self, volunteers: int = 3, data: Path | None = None) -> None:
        self.volunteers = volunteers
        self._data = data
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: Deployment | None = None
        self._connection: Connection | None = None
        self._sync: SyncConnection | None = None

    def start(self) -> Path:
        """Start the processes and return the connection file; blocks until ready.

        Raises:
            UsageError: ``STO-U002`` naming the extra that is not installed.
            InternalError: ``STO-U005`` when the server does not come up.
        """
        check_extra()
        from stoilo.testing.deployment import Deployment  # noqa: PLC0415 - an extra

        data = self._data
        if data is None:
            self._folder = tempfile.TemporaryDirectory(prefix="stoilo-")
            data = Path(self._folder.name) / "data"
        self._server = Deployment(data, volunteers=self.volunteers)
        try:
            return Path(self._server.start().connection)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every process and remove the data, if they were ours to choose."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def __aenter__(self) -> Connection:
        """Start and connect."""
        from stoilo.client.connection import connect  # noqa: PLC0415 - needs gRPC

        path = await asyncio.to_thread(self.start)
        try:
            self._connection = await connect(path, timeout=START_S)
        except BaseException:
            await asyncio.to_thread(self.stop)
            raise
        return self._connection

    async def __aexit__(self, *exc_info: object) -> None:
        """Disconnect and stop."""
        if self._connection is not None:
            await self._connection.close()
        await asyncio.to_thread(self.stop)

    def __enter__(self) -> SyncConnection:
        """Start and connect."""
        from stoilo.client.sync import connect_sync  # noqa: PLC0415 - needs gRPC

        path = self.start()
        try:
            self._sync = connect_sync(path, timeout=START_S)
        except BaseException:
            self.stop()
            raise
        return self._sync

    def __exit__(self, *exc_info: object) -> None:
        """Disconnect and stop."""
        if self._sync is not None:
            self._sync.close()
        self.stop()


def check_extra() -> None:
    """Raise ``STO-U002`` unless the server's packages are installed."""
    for module, extra in _NEEDED.items():
        if importlib.util.find_spec(module) is None:
            raise UsageError(
                "STO-U002",
                f"stoilo.local() needs {module}, which is not installed",
                hint=f"pip install 'stoilo[{extra}]'",
            )


def local(volunteers: int = 3, data: Path | None = None) -> LocalProject:
    """Return a project of our own: ``async with stoilo.local() as conn: ...``.

    Args:
        volunteers: how many, each its own user and host.
        data: directory to keep; None uses a temporary one that is removed.
    """
    return LocalProject(volunteers, data)
