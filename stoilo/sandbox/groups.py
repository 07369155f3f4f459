"""``except*``: the interpreter splits groups by their own methods and believes the answer.

CPython before 3.12.9 and 3.13.2 takes what ``split`` returns for a pair without looking
(CVE-2025-22153), and a handler may be left with what ``derive`` made. So each clause first
sees that the group which is being handled has the interpreter's own two methods. What is
left over after that is a plain group which no code of the task gets hold of.
"""

from __future__ import annotations

import sys

from stoilo.sandbox.ownership import class_dict, class_mro
from stoilo.sandbox.refusals import GuardError, kind_name

__all__ = ["check_group"]

_METHODS = ("derive", "split")
_find_dict = vars(BaseException)["__dict__"].__get__


def check_group(kinds: object) -> object:
    """Return `kinds`, what an ``except*`` clause names; refuse the group being handled.

    Raises:
        GuardError: ``STO-G105``, the group has a ``split`` or ``derive`` of its own.
    """
    handled = sys.exc_info()[1]
    if isinstance(handled, BaseExceptionGroup) and not _is_plain(handled):
        message = (
            f"except* takes no {kind_name(handled)}: it has its own split or derive"
        )
        raise GuardError("STO-G105", message)
    return kinds


def _is_plain(group: BaseException) -> bool:
    stored = _find_dict(group)
    return all(
        name not in stored and _definer(type(group), name) is BaseExceptionGroup
        for name in _METHODS
    )


def _definer(cls: type, name: str) -> type:
    return next(base for base in class_mro(cls) if name in class_dict(base))
