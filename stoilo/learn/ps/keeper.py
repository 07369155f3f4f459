"""What a parameter server asks of a shard, in its own process or in this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from stoilo.learn.ps.shards import Cell, Push
from stoilo.learn.ps.values import Value

__all__ = ["Keeper"]


class Keeper(Protocol):
    """Cells by key; every call may be repeated without harm, and any thread may call."""

    def close(self) -> None:
        """Let the file go; all that was acknowledged is in it."""

    def list_keys(self) -> tuple[str, ...]:
        """Return the keys, sorted."""

    def read(self, keys: Iterable[str]) -> dict[str, Cell]:
        """Return cells, or raise ``STO-T074`` for an unknown key."""

    def create(self, values: Mapping[str, Value]) -> None:
        """Make the cells that are not there yet."""

    def apply(self, push: Push) -> int:
        """Apply what is new of a push; return how many cells changed.

        When it returns, all of that is kept.
        """

    def accept(self, cells: Mapping[str, Cell]) -> None:
        """Take over cells from another shard, history included."""

    def drop(self, keys: Iterable[str]) -> None:
        """Forget cells that another shard has taken over."""
