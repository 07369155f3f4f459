"""Mistakes that a type checker finds before anything is sent; each line says which."""

from __future__ import annotations

from typing import Any

import stoilo


def halve(kw: dict[str, Any]) -> float:
    return float(kw["x"]) / 2


def area(width: int, height: int = 1) -> int:
    return width * height


def mistakes(conn: stoilo.SyncConnection, pool: stoilo.Executor) -> None:
    conn.create_task(area)  # error: arg-type
    conn.create_task(halve, {"x": 1}, level=3)  # error: arg-type
    conn.create_task(halve, {"x": 1}, redundency=None)  # error: call-arg
    total: float = conn.create_task(halve, {"x": 1}).result()  # error: assignment
    pool.submit(area, "2")  # error: arg-type
    words: str = pool.submit(area, 2).result()  # error: assignment
    print(total, words)
