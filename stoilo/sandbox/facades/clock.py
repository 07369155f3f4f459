"""`time`, `datetime` and `random`: the admission's time and seed, never the host's."""

from __future__ import annotations

import calendar
import datetime as dt
import importlib
import time
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.runtime import RUN
from stoilo.sandbox.language.substitutes import StandIn

# `time`: the admission's time, UTC, and stopwatches that tick alike on every copy -----


_NS = 1_000_000_000


def _now() -> float:
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


_STOPWATCHES = ("monotonic", "perf_counter", "process_time", "thread_time")
_TIME = {
    **dict.fromkeys(_STOPWATCHES, RUN.elapsed_s),
    **dict.fromkeys((f"{name}_ns" for name in _STOPWATCHES), _elapsed_ns),
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


# `datetime`: ``now`` and ``today`` are the admission's time; instances are real ones


def _moment() -> dt.datetime:
    return dt.datetime.fromtimestamp(RUN.now, tz=dt.UTC)


class Datetime(dt.datetime, metaclass=StandIn):
    """Stands for ``datetime.datetime``."""

    __stoilo_real__ = dt.datetime

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # A task's own subclass keeps its type
        if cls is Datetime:
            return dt.datetime(*args, **kwargs)  # noqa: DTZ001 - the task's choice
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        moment = _moment()
        moment = moment.replace(tzinfo=None) if tz is None else moment.astimezone(tz)
        return moment if cls is Datetime else cls.fromisoformat(moment.isoformat())

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: dt.tzinfo | None = None) -> Any:
        # Local time is UTC here
        if tz is not None:
            return super().fromtimestamp(timestamp, tz)
        return super().fromtimestamp(timestamp, dt.UTC).replace(tzinfo=None)


class Date(dt.date, metaclass=StandIn):
    """Stands for ``datetime.date``."""

    __stoilo_real__ = dt.date

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # A task's own subclass keeps its type
        if cls is Date:
            return dt.date(*args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        moment = _moment()
        return cls(moment.year, moment.month, moment.day)


for _stand_in, _name in ((Datetime, "datetime"), (Date, "date")):
    _stand_in.__name__ = _stand_in.__qualname__ = _name
    _stand_in.__module__ = "datetime"


def _build_random(_level: Level) -> dict[str, object]:
    # Imported here: 1 ms of every cold start whose task asks for the time only.
    random: Any = importlib.import_module("random")

    class Random(random.Random):  # type: ignore[misc]  # a module found at run time
        """``random.Random`` whose missing seed comes from the admission."""

        def seed(self, a: Any = None, version: int = 2) -> None:
            # None means the next seed of this run
            super().seed(RUN.next_seed() if a is None else a, version)

    def seed(a: Any = None, version: int = 2) -> None:
        # None means the next seed of this run
        random.seed(RUN.next_seed() if a is None else a, version)

    Random.__module__, Random.__qualname__ = "random", "Random"
    seed.__qualname__ = "seed"
    return {"Random": Random, "seed": seed}


FACADES: dict[str, object] = {
    "datetime": {"datetime": Datetime, "date": Date},
    "random": _build_random,
    "time": _TIME,
}
