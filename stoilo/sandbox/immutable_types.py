"""Members of CPython's own immutable types, exchanged before a task's code runs.

Some methods written in C keep a bare pointer while they call back into a task
(`stoilo.sandbox.buffers`), or believe numbers that a task chose
(`stoilo.sandbox.unicode_errors`). A stand-in under the type's *name* would leave the type
itself in reach: slices, exceptions that codecs raise and ``__exit__``'s first argument are
of it. So the member is exchanged in the type: on every road, for every instance.

CPython refuses that for its own types by one flag. It is taken off for the exchange, here
and nowhere else, and what was written is read back.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping

from stoilo.core.errors import InternalError

__all__ = ["replace_members"]

_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE (Include/object.h), since CPython 3.10."""

_FLAGS_OFFSET = object.__basicsize__ + 152
"""Of ``tp_flags`` behind the object header, on 64-bit machines, in every CPython since 3.8."""

_ALL_FLAGS = (1 << 64) - 1


def replace_members(cls: type, members: Mapping[str, object]) -> None:
    """Give the builtin or extension type `cls` these `members`, slots included.

    For the whole process. Whoever holds an old member, as a bound method, keeps it.

    Args:
        cls: an immutable type of CPython's.
        members: by name; all exist already.

    Raises:
        InternalError: ``STO-G130`` this interpreter lays types out in another way.
    """
    flags = ctypes.c_ulong.from_address(id(cls) + _FLAGS_OFFSET)
    before = cls.__flags__ & _ALL_FLAGS
    if flags.value != before or not before & _IMMUTABLE:
        raise InternalError("STO-G130", f"{cls.__name__} is no immutable type here")
    namespace = gc.get_referents(cls.__dict__)[0]
    flags.value = before & ~_IMMUTABLE
    try:
        for name, value in members.items():
            namespace[name] = value  # where 3.12 and later look slots up
            type.__setattr__(cls, name, value)
    finally:
        flags.value |= _IMMUTABLE
    lost = [name for name in members if cls.__dict__.get(name) is not members[name]]
    if lost:
        raise InternalError("STO-G130", f"{cls.__name__}.{lost[0]} was not exchanged")
