"""The clock of `datetime` stands still, for library code and for every instance too.

A façade's ``datetime.now`` is not the only way to ask: an argument or a sum is a real
``datetime``, and its class method ``now`` reads the host's clock. That clock cannot be taken
away by a filter (vDSO), so the methods are replaced in the process that runs tasks.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import gc
from typing import Any

from stoilo.sandbox.determinism import RUN

__all__ = ["stop_clock"]


def _now(cls: Any, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - own subclasses too
    """Return admitted_at in `tz`, naive UTC without one (the zone of the jail)."""
    return cls.fromtimestamp(RUN.now, tz)


def _today(cls: Any) -> Any:  # noqa: ANN401
    """Return admitted_at, or its day, in UTC."""
    return cls.fromtimestamp(RUN.now)


def _replace(kind: type, **methods: Any) -> None:  # noqa: ANN401
    """Replace class methods of a type that takes no assignment."""
    (names,) = gc.get_referents(kind.__dict__)
    for name, method in methods.items():
        method.__name__ = name
        names[name] = classmethod(method)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def stop_clock() -> None:
    """Let ``now``, ``utcnow`` and ``today`` be the admission's time; in a zygote only."""
    _replace(dt.date, today=_today)
    _replace(dt.datetime, now=_now, utcnow=_today)
