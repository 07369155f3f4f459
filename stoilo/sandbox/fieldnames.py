"""Names that a class lets others read by: fields of dataclasses, ``__match_args__``.

``case C(x)`` reads the attribute that ``C.__match_args__`` names off whatever counts as an
instance of C; ``asdict`` and ``replace`` read every field off the instance. Both are
plain access by a name that the task chose, though no source can write either table: the
library makes them from annotations. A metaclass such as ABCMeta counts foreign objects as
instances (``register``, protocols), and a library base may keep a name to itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from stoilo.sandbox.ownership import class_dict, class_mro, is_own_class, keeps
from stoilo.sandbox.rules import NameKind, attribute_kind

__all__ = ["find_bad_field", "may_be_field", "narrow_match_args"]

_FIELDS, _MATCH_ARGS = "__dataclass_fields__", "__match_args__"


def _inherited(cls: type, name: str) -> Iterable[object]:
    """Return the table `name` of the first class in the MRO that has it."""
    for base in class_mro(cls):
        if name in class_dict(base):
            found: Iterable[object] = class_dict(base)[name]
            return found
    return ()


def may_be_field(cls: type, name: object) -> bool:
    """Whether ``instance.name`` of an own class can give nothing but the task's own."""
    if type(name) is not str or attribute_kind(name) is NameKind.REFUSED:
        return False
    if attribute_kind(name) is NameKind.PLAIN:
        return True
    return not any(
        name in class_dict(base) or keeps(base, name)
        for base in class_mro(cls)
        if not is_own_class(base)
    )


def find_bad_field(cls: type) -> str:
    """Return a dataclass field of the own class `cls` that reads what is not its own.

    Empty if there is none.
    """
    for name in _inherited(cls, _FIELDS):
        if not may_be_field(cls, name):
            return str(name)
    return ""


def narrow_match_args(cls: type) -> None:
    """Cut the own class `cls`'s ``__match_args__`` before the first name out of reach.

    Only a class whose metaclass is ``type`` has no instances but its own; there a
    name such as ``format`` may stay.
    """
    names = tuple(_inherited(cls, _MATCH_ARGS))
    if type(cls) is type:
        kept = tuple(takewhile(lambda name: may_be_field(cls, name), names))
    else:
        kept = tuple(takewhile(_is_plain, names))
    if kept != names:
        type.__setattr__(cls, _MATCH_ARGS, kept)


def _is_plain(name: object) -> bool:
    return type(name) is str and attribute_kind(name) is NameKind.PLAIN
