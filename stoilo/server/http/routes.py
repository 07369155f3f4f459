"""Further web faces of the server: who offers pages gets the place and gives routes.

The server knows no page. `run_server(…, faces=…)` mounts what the command line hands to
it, so that pages for people stay above the server in the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import BaseRoute

AUDIT_PAGES = "/audit/"
"""Where a face shows the log to people."""


@dataclass(frozen=True, slots=True)
class PublicPlace:
    """What a face may know of the server that it is mounted in."""

    data: Path  # the data directory; a face only reads, and only what is public
    url: str  # of the server as it is reached, with final slash


Face = Callable[[PublicPlace], Sequence[BaseRoute]]
"""Returns the routes of one face; called once, before the server listens."""
