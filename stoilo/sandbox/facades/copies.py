"""`copy`: the library's ledger of copies stays its own.

``deepcopy`` keeps a dictionary from addresses to copies and believes it. A task that
could write there would choose an object's state, names and all; one that could read there
would see addresses. So a task's ``__deepcopy__`` is handed a `Memo` that stands for it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import is_own_method
from stoilo.sandbox.language.refusals import GuardError

__all__ = ["Memo", "build", "hide_memo"]

_rebuild = copy._reconstruct  # type: ignore[attr-defined]  # noqa: SLF001 - fills copies


class Memo:
    """Stands for the ledger of one ``deepcopy``; good for passing on only."""

    __slots__ = ()


_ledgers: dict[Memo, dict[int, object]] = {}


def _stand_for(ledger: object) -> Memo:
    if type(ledger) is Memo:
        return ledger
    for memo, known in _ledgers.items():
        if known is ledger:
            return memo
    return Memo()


def hide_memo(method: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    """Return the task's ``__deepcopy__`` so that it gets a `Memo` in any case."""

    @functools.wraps(method)
    def __deepcopy__(self: Any, memo: Any) -> object:  # noqa: N807
        return method(self, _stand_for(memo))

    return __deepcopy__


def deepcopy(x: Any, memo: Any = None) -> Any:
    """``copy.deepcopy``; any `memo` but the one given to ``__deepcopy__`` is a new one."""
    if type(memo) is Memo and memo in _ledgers:
        return copy.deepcopy(x, _ledgers[memo])
    memo, ledger = Memo(), dict[int, object]()
    _ledgers[memo] = ledger
    try:
        return copy.deepcopy(x, ledger)
    finally:
        del _ledgers[memo]


def _checked_rebuild(
    x: Any,
    memo: Any,
    make: Callable[..., object],
    args: Any,
    *state: Any,
    **options: Any,
) -> Any:
    """``copy._reconstruct`` that fills nothing but a new object of `x`'s class."""

    def checked(*values: object) -> object:
        made = make(*values)
        if is_own_method(type(x), "__new__") and type(made) is not type(x):
            raise GuardError("STO-G102", "__new__ gave a copy of another class")
        return made

    return _rebuild(x, memo, checked, args, *state, **options)


def build(level: Level) -> dict[str, object]:
    """Put the check into the library, which calls it for nested objects too."""
    del level
    copy._reconstruct = _checked_rebuild  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return {"deepcopy": deepcopy}
