# /// stoilo-case
# idea = "dates and times"
# ///
"""Month grids, easter, working days, time zones with fixed offsets, ISO weeks, parsing."""
import calendar
import time
from datetime import date, datetime, time as clock, timedelta, timezone
from itertools import count, islice, takewhile


def easter(y):
    a, b, c = y % 19, y // 100, y % 100
    d = (19 * a + b - b // 4 - (b - (b + 8) // 25 + 1) // 3 + 15) % 30
    e = (32 + 2 * (b % 4) + 2 * (c // 4) - d - c % 4) % 7
    f = d + e - 7 * ((a + 11 * d + 22 * e) // 451) + 114
    return date(y, f // 31, f % 31 + 1)


def workdays(start):
    return (d for d in (start + timedelta(n) for n in count()) if d.weekday() < 5)


def run(kwargs):
    berlin = timezone(timedelta(hours=1), "CET")
    meeting = datetime(2024, 2, 29, 9, 30, tzinfo=berlin)
    print(calendar.month(2024, 2))
    grid = calendar.TextCalendar(firstweekday=6).formatmonth(2023, 10).splitlines()
    parsed = datetime.strptime("03 Jul 2021 14:05:09 +0200", "%d %b %Y %H:%M:%S %z")
    weeks = calendar.Calendar().monthdatescalendar(2024, 3)
    return {
        "easter": [easter(y).isoformat() for y in range(2020, 2026)],
        "work": [d.strftime("%a %d") for d in islice(workdays(date(2024, 3, 28)), 4)],
        "utc": meeting.astimezone(timezone.utc).isoformat(),
        "name": meeting.tzname(),
        "grid": grid[1:3],
        "parsed": [parsed.isoformat(), parsed.timestamp()],
        "week": tuple(date(2021, 1, 3).isocalendar()),
        "delta": str(date(2024, 12, 25) - date(2024, 2, 28)),
        "thirteen": [d.isoformat() for d in takewhile(lambda d: d.year < 2025, (date(2024, m, 13) for m in range(1, 13))) if d.weekday() == 4],
        "weeks": len(weeks),
        "combine": datetime.combine(date(2000, 1, 1), clock(12, 30)).ctime(),
        "leap": [y for y in (1900, 2000, 2023, 2024) if calendar.isleap(y)],
        "strptime": time.strptime("2020-05-17", "%Y-%m-%d").tm_yday,
        "gm": calendar.timegm((2001, 9, 9, 1, 46, 40)),
        "total": timedelta(days=1, microseconds=5).total_seconds(),
    }
