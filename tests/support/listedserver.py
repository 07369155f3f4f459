"""A deployment that also writes down the routes of every web server that it starts."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

from stoilo.cli.main import main
from stoilo.server.http import web_server
from stoilo.testing.deployment import Deployment


class ListedDeployment(Deployment):
    """`stoilo up`, whose processes are started by this very file."""

    @property
    def table(self) -> Path:
        """The file of the routes, one line a web server."""
        return self.data.with_suffix(".routes")

    def command(self) -> list[str]:
        """Return the whole command line."""
        return [sys.executable, __file__, str(self.table), *self.words()]

    def routes(self) -> list[set[str]]:
        """Return each web server's routes as ``METHOD path``, as they are in force."""
        lines = self.table.read_text().splitlines()
        return [set(json.loads(line)) for line in lines]


def list_routes(app: Any) -> list[str]:
    """Return every method and path of starlette's application, or of ours around one.

    What is no route, for example a mount, gets ``?`` for a method.
    """
    app = getattr(app, "_app", app)
    return [
        f"{method} {route.path}"
        for route in app.routes
        for method in sorted((getattr(route, "methods", None) or {"?"}) - {"HEAD"})
    ]


class ListingServer(web_server.WebServer):
    """Writes its routes when it begins to serve, when nothing is added any more."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Write, then start."""
        self.write(Path(sys.argv[1]))
        await super().startup(sockets)

    def write(self, table: Path) -> None:
        """Add a line to `table`."""
        with table.open("a") as file:
            file.write(json.dumps(list_routes(self.config.app)) + "\n")


if __name__ == "__main__":
    web_server.WebServer = ListingServer  # type: ignore[misc]  # for this process
    sys.exit(main(sys.argv[2:]))
