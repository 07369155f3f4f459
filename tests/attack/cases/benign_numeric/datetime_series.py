# /// stoilo-case
# idea = "dates and times"
# level = "numeric"
# ///
"""A year of daily data with datetime64: calendars, resampling, business days."""
import numpy as np
from datetime import date, datetime


def run(kwargs):
    days = np.arange("2023-01-01", "2024-01-01", dtype="datetime64[D]")
    values = np.sin(2 * np.pi * np.arange(days.size) / 365)
    months = days.astype("datetime64[M]")
    uniq, start = np.unique(months, return_index=True)
    monthly = np.add.reduceat(values, start) / np.diff(np.append(start, days.size))
    weekday = (days.astype("datetime64[D]").view("int64") - 4) % 7
    weekly = np.array([values[weekday == d].mean() for d in range(7)])
    gap = days[1:] - days[:-1]
    stamp = np.datetime64("2023-06-15T12:30") + np.timedelta64(90, "m")
    nat = np.array(["2023-01-01", "NaT"], dtype="M8[s]")
    cal = np.busdaycalendar(holidays=["2023-12-25", "2023-12-26"])
    as_py = days[:2].tolist()
    print(np.datetime_as_string(stamp, unit="s"), stamp.dtype, days[-1])
    return {
        "monthly": monthly,
        "months": np.datetime_as_string(uniq).tolist(),
        "weekly": weekly,
        "gap": bool((gap == np.timedelta64(1, "D")).all()),
        "hours": (stamp - np.datetime64("2023-06-15")) / np.timedelta64(1, "h"),
        "nat": np.isnat(nat),
        "busdays": int(np.busday_count("2023-12-01", "2024-01-01", busdaycal=cal)),
        "offset": str(np.busday_offset("2023-12-24", 1, roll="forward", busdaycal=cal)),
        "is": np.is_busday(["2023-07-01", "2023-07-03"]),
        "as_py": [d.isoformat() for d in as_py],
        "iso": as_py[0] == date(2023, 1, 1),
        "item": np.datetime64("2020-02-29T01:02:03").item() == datetime(2020, 2, 29, 1, 2, 3),
        "days": days[::100],
        "doy": (days[[0, 100, 364]] - days[[0, 100, 364]].astype("M8[Y]")).astype(int) + 1,
        "unit": np.datetime_data(stamp.dtype)[0],
    }
