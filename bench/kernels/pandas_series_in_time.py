import numpy as np
import pandas as pd


def run(n):
    hours = pd.date_range("2020-01-01", periods=20_000, freq="h")
    values = np.random.default_rng(2).normal(size=20_000).cumsum()
    series = pd.Series(values, index=hours)
    total = 0.0
    for _ in range(n):
        days = series.resample("D").mean()
        smooth = series.rolling(24).mean().dropna()
        total += float(days.diff().abs().sum()) + float(smooth.iloc[-1])
        total += float(series.groupby(series.index.hour).std().sum())
    return total
