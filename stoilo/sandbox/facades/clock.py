"""`time`: the admission's time, UTC, and stopwatches that tick alike on every copy."""

from __future__ import annotations

import calendar
import time

from stoilo.core.levels import Level
from stoilo.sandbox.language.determinism import RUN

__all__ = ["build"]

_NS = 1_000_000_000


def _now() -> float:
    """Return admitted_at, s."""
    return float(RUN.now)


def _now_ns() -> int:
    return RUN.now * _NS


def _elapsed_ns() -> int:
    return round(RUN.elapsed_s() * _NS)


def _gmtime(seconds: float | None = None) -> time.struct_time:
    return time.gmtime(RUN.now if seconds is None else seconds)


def _mktime(moment: time.struct_time) -> float:
    return float(calendar.timegm(moment))


def _strftime(layout: str, moment: time.struct_time | None = None) -> str:
    return time.strftime(layout, _gmtime() if moment is None else moment)


def _asctime(moment: time.struct_time | None = None) -> str:
    return time.asctime(_gmtime() if moment is None else moment)


def _ctime(seconds: float | None = None) -> str:
    return time.asctime(_gmtime(seconds))


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    stopwatches = ("monotonic", "perf_counter", "process_time", "thread_time")
    return {
        **dict.fromkeys(stopwatches, RUN.elapsed_s),
        **dict.fromkeys((f"{name}_ns" for name in stopwatches), _elapsed_ns),
        "asctime": _asctime,
        "ctime": _ctime,
        "gmtime": _gmtime,
        "localtime": _gmtime,
        "mktime": _mktime,
        "strftime": _strftime,
        "time": _now,
        "time_ns": _now_ns,
        "timezone": 0,
        "tzname": ("UTC", "UTC"),
    }
