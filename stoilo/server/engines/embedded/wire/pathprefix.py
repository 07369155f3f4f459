"""A project behind a path: the same pages with the prefix of its URL and without it.

What stands before the project (a reverse proxy) may take the prefix off or leave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["PathPrefix"]


class PathPrefix:
    """An ASGI application seen below `prefix`, for example ``/stoilo/``."""

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on; routes do not see the prefix."""
        if self._prefix and f"{scope.get('path', '')}/".startswith(f"{self._prefix}/"):
            scope = {**scope, "root_path": self._prefix}
        await self._app(scope, receive, send)
