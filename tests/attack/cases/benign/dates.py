# /// stoilo-case
# idea = "dates"
# run = "task"
# level = "pure"
# ///
import datetime as dt
from datetime import date, datetime, timedelta, timezone


def run(kwargs):
    start = datetime(2024, 2, 28, 12, 30, tzinfo=timezone.utc)
    later = start + timedelta(days=2, hours=13)
    parsed = datetime.strptime("2023-07-04 01:02", "%Y-%m-%d %H:%M")
    day = date(2024, 12, 31)
    return [
        later,
        (later - start).total_seconds(),
        later.isoformat(),
        parsed,
        parsed.strftime("%d %B %Y"),
        day.timetuple().tm_yday,
        (day + timedelta(days=1)).year,
        dt.datetime.fromisoformat("2020-01-01T00:00:00+02:00"),
        isinstance(start, datetime),
        isinstance(start, date),
        type(start) is datetime,
        repr(dt.timedelta(minutes=5)),
        min(start, later) == start,
        datetime.combine(day, dt.time(3)),
    ]
