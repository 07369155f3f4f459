"""`pprint`: a printer that a task may extend without being shown addresses.

The library's methods hand on a dictionary of the addresses of what is being printed. A
task's own methods of a subclass get a `Ledger` instead, which only answers the library.
"""

from __future__ import annotations

import pprint
from typing import Any

from stoilo.core.levels import Level

__all__ = ["build"]


class Ledger:
    """What is being printed, for the library's eyes."""

    __slots__ = ("_known",)

    def __init__(self, known: tuple[int, ...] = ()) -> None:
        self._known = set(known)

    def __contains__(self, address: int) -> bool:
        return address in self._known

    def __setitem__(self, address: int, _one: int) -> None:
        self._known.add(address)

    def __delitem__(self, address: int) -> None:
        self._known.discard(address)

    def copy(self) -> Ledger:
        """Return another with the same content."""
        return Ledger(tuple(self._known))


def _hide(context: Any) -> Any:
    return context if type(context) is Ledger else Ledger()


class PrettyPrinter(pprint.PrettyPrinter):
    """``pprint.PrettyPrinter``."""

    def format(self, object: Any, context: Any, maxlevels: int, level: int) -> Any:  # noqa: A002 - the library's names
        """Return the text of `object`, whether it is readable and whether recursive."""
        return super().format(object, _hide(context), maxlevels, level)

    def _format(
        self,
        object: Any,  # noqa: A002
        stream: Any,
        indent: int,
        allowance: int,
        context: Any,
        level: int,
    ) -> None:
        super()._format(object, stream, indent, allowance, _hide(context), level)


PrettyPrinter.__module__ = "pprint"


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    return {"PrettyPrinter": PrettyPrinter}
