"""Time series: ranges, zones, resampling, windows, periods, calendars."""

import numpy as np
import pandas as pd


def _readings(days=40):
    draws = np.random.default_rng(3)
    hours = pd.date_range("2024-03-01", periods=24 * days, freq="h")
    waves = 10 + 5 * np.sin(np.arange(len(hours)) * 2 * np.pi / 24)
    return pd.Series(waves + draws.normal(0, 1, len(hours)), index=hours, name="celsius")


def daily_and_weekly_summary(args):
    readings = _readings()
    daily = readings.resample("D").agg(["mean", "min", "max"])
    weekly = readings.resample("W-MON", label="left", closed="left").sum()
    return daily, weekly, readings.resample("12h").ohlc().tail(3)


def moving_windows(args):
    readings = _readings(10)
    return pd.DataFrame(
        {
            "fixed": readings.rolling(6).mean(),
            "timed": readings.rolling("36h", min_periods=4).std(),
            "centred": readings.rolling(5, center=True).median(),
            "grown": readings.expanding(3).max(),
            "faded": readings.ewm(halflife=6).mean(),
            "own": readings.rolling(4).apply(lambda part: part[-1] - part[0], raw=True),
        }
    )


def across_summer_time(args):
    local = pd.date_range("2024-03-30 22:00", periods=8, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"local": local, "utc": local.tz_convert("UTC")})
    offsets = [str(moment.utcoffset()) for moment in local]
    return frame, offsets, local.tz_localize(None)


def business_days_and_offsets(args):
    days = pd.bdate_range("2024-12-20", "2025-01-10")
    rule = pd.offsets.CustomBusinessDay(holidays=["2024-12-25", "2025-01-01"])
    shifted = [day + 3 * rule for day in days[:4]]
    ends = pd.date_range("2024-01-15", periods=6, freq="ME") + pd.offsets.Day(1)
    return list(days.strftime("%d.%m.")), shifted, ends


def periods_and_quarters(args):
    months = pd.period_range("2023-11", periods=14, freq="M")
    values = pd.Series(np.arange(14.0), index=months)
    quarters = values.groupby(months.asfreq("Q-NOV")).sum()
    return quarters, months[3].start_time, (months[5] - months[2]).n


def parts_of_dates(args):
    stamps = pd.Series(pd.to_datetime(["2024-02-29 13:45:10", "2023-12-31 00:00:00", None]))
    table = pd.DataFrame(
        {
            "day": stamps.dt.day_name(),
            "week": stamps.dt.isocalendar().week,
            "quarter": stamps.dt.quarter,
            "leap": stamps.dt.is_leap_year,
            "floor": stamps.dt.floor("h"),
            "text": stamps.dt.strftime("%Y/%m"),
        }
    )
    return table


def dates_read_from_text(args):
    mixed = pd.to_datetime(["03/04/2024", "15/01/2023"], format="%d/%m/%Y")
    iso = pd.to_datetime(pd.Series(["2024-05-01T10:00:00+02:00", "2024-05-02"]), utc=True,
                         format="ISO8601")
    broken = pd.to_datetime(["2024-01-01", "no date"], errors="coerce")
    spans = pd.to_timedelta(["1 days 2 hours", "90min"])
    return mixed, iso, broken, spans, spans.total_seconds().tolist()


def gaps_filled_and_aligned(args):
    readings = _readings(3).drop(labels=_readings(3).index[[4, 5, 6, 20]])
    whole = readings.asfreq("h")
    return pd.DataFrame(
        {
            "linear": whole.interpolate(),
            "held": whole.ffill(limit=2),
            "timed": whole.interpolate(method="time"),
            "lagged": whole.shift(1, freq="h").reindex(whole.index),
        }
    )


def autocorrelation_and_changes(args):
    readings = _readings(5)
    return [
        readings.autocorr(24),
        readings.pct_change().abs().max(),
        readings.diff(24).std(),
        readings.between_time("08:00", "10:00").mean(),
        readings.at_time("12:00").tolist(),
    ]


def nearest_earlier_quote(args):
    trades = pd.DataFrame(
        {"time": pd.to_datetime([5, 9, 15], unit="s"), "pieces": [1, 2, 3]}
    )
    quotes = pd.DataFrame(
        {"time": pd.to_datetime([1, 6, 14, 20], unit="s"), "price": [9.5, 9.7, 9.1, 8.8]}
    )
    return pd.merge_asof(trades, quotes, on="time", tolerance=pd.Timedelta("4s"))
