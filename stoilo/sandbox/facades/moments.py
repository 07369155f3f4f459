"""`datetime`: ``now`` and ``today`` are the admission's time; instances are real ones."""

from __future__ import annotations

import datetime as dt
from typing import Any

from stoilo.core.levels import Level
from stoilo.sandbox.language.determinism import RUN
from stoilo.sandbox.language.stand_ins import StandIn

__all__ = ["build"]


def _moment() -> dt.datetime:
    return dt.datetime.fromtimestamp(RUN.now, tz=dt.UTC)


class Datetime(dt.datetime, metaclass=StandIn):
    """Stands for ``datetime.datetime``."""

    __stoilo_real__ = dt.datetime

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a real datetime; a task's own subclass keeps its type."""
        if cls is Datetime:
            return dt.datetime(*args, **kwargs)  # noqa: DTZ001 - the task's choice
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        """Return admitted_at in `tz`, naive UTC without one."""
        moment = _moment()
        moment = moment.replace(tzinfo=None) if tz is None else moment.astimezone(tz)
        return moment if cls is Datetime else cls.fromisoformat(moment.isoformat())

    @classmethod
    def today(cls) -> Any:
        """Return admitted_at, naive UTC."""
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        """Return admitted_at, naive UTC."""
        return cls.now()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: dt.tzinfo | None = None) -> Any:
        """Return the moment in `tz`; local time is UTC here."""
        if tz is not None:
            return super().fromtimestamp(timestamp, tz)
        return super().fromtimestamp(timestamp, dt.UTC).replace(tzinfo=None)


class Date(dt.date, metaclass=StandIn):
    """Stands for ``datetime.date``."""

    __stoilo_real__ = dt.date

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a real date; a task's own subclass keeps its type."""
        if cls is Date:
            return dt.date(*args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    @classmethod
    def today(cls) -> Any:
        """Return the day of admitted_at, UTC."""
        moment = _moment()
        return cls(moment.year, moment.month, moment.day)


def build(level: Level) -> dict[str, object]:
    """Return the replacements."""
    del level
    for stand_in, name in ((Datetime, "datetime"), (Date, "date")):
        stand_in.__name__ = stand_in.__qualname__ = name
        stand_in.__module__ = "datetime"
    return {"datetime": Datetime, "date": Date}
