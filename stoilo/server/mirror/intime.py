"""Connections whose answers have a deadline, for both sides of a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from stoilo.audit.opener import answers_in_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["pool_in_time"]

CONNECT_S = 10.0


def pool_in_time(
    timeout_s: float, answer_s: Callable[[], float], ca: Path | None = None
) -> urllib3.PoolManager:
    """Return connections that no byte now and then keeps busy.

    Args:
        timeout_s: longest pause of the other side, s.
        answer_s: asked when an answer begins: most that all of it may take, s.
        ca: certificates to trust instead of the system's, None for the system's.
    """
    answer: Any = answers_in_time(timeout_s, answer_s)

    class Plain(HTTPConnection):
        """http with a deadline."""

        response_class = staticmethod(answer)  # type: ignore[assignment]  # a callable

    class Secure(HTTPSConnection):
        """https with a deadline."""

        response_class = staticmethod(answer)  # type: ignore[assignment]  # a callable

    class PlainPool(urllib3.HTTPConnectionPool):
        """Connections of the one kind."""

        ConnectionCls = Plain

    class SecurePool(urllib3.HTTPSConnectionPool):
        """Connections of the other."""

        ConnectionCls = Secure

    pool = urllib3.PoolManager(
        retries=False,
        timeout=urllib3.Timeout(connect=min(CONNECT_S, timeout_s), read=timeout_s),
        ca_certs=str(ca) if ca else None,
    )
    pool.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
    return pool
