"""What readiness asks: databases, signer, log, release, disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from stoilo.server.db import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from stoilo.server.db.store import Store
    from stoilo.server.engines.interface import MeasuredEngine
    from stoilo.server.release.expiry import ReleaseStatus
    from stoilo.server.watching.freshness import LogFigures


FREE_BYTES: Final = 128 * 1024 * 1024
"""Below this the server takes no more work: uploads stop at half of it."""

LAG_S: Final = 30.0
"""How long a leaf may wait for a checkpoint, s."""


def check_store(store: Store) -> str:
    """Ask the server's database for a row."""
    with store.read() as connection:
        connection.execute(select(schema.account.c.id).limit(1)).first()
    return ""


def check_engine(engine: MeasuredEngine) -> str:
    """Ask the engine's database for a row; counting all of them takes too long."""
    engine.check_database()
    return ""


def check_log(figures: Callable[[], LogFigures]) -> str:
    """Say whether the log is stopped, or behind its leaves."""
    found = figures()
    if found.lag_s <= LAG_S:
        return found.trouble
    waiting = found.leaves - found.published
    return found.trouble or (
        f"{waiting} leaves have waited {found.lag_s:.0f} s for a checkpoint"
    )


def check_release(status: Callable[[], ReleaseStatus]) -> str:
    """Say whether volunteers would still accept what is admitted now."""
    found = status()
    if found.trouble:
        return f"the release cannot be relied on [{found.trouble}]"
    if found.epochs == "expired":
        return "no gate epoch is open [STO-K096]"
    return "" if found.state != "expired" else "the release's metadata has expired"


def check_disk(places: Iterable[Path], least: int = FREE_BYTES) -> str:
    """Say whether a disk is nearly full; names no path."""
    try:
        free = min(shutil.disk_usage(place).free for place in places)
    except OSError as error:
        return f"a disk cannot be asked (errno {error.errno})"
    return "" if free >= least else f"{free} bytes are free, {least} are needed"
