"""Statements are compiled once for all databases that a session of tests opens.

SQLAlchemy keeps them for each engine; nearly every test opens new ones, and compiling the
same statements again was a quarter of what the server's tests cost.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

__all__ = ["share_compiled_sql"]

_STATEMENTS: LRUCache[object, object] = LRUCache(4096)


def share_compiled_sql() -> None:
    """Let dialects of one kind be one key, and all connections look in one cache."""
    DefaultDialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    event.listen(Engine, "engine_connect", _look_there)


def _look_there(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_STATEMENTS)
