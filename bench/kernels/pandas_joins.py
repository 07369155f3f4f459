import numpy as np
import pandas as pd


def run(n):
    rng = np.random.default_rng(3)
    left = pd.DataFrame({"key": rng.integers(0, 2000, 15_000), "a": np.arange(15_000)})
    right = pd.DataFrame({"key": np.arange(2000), "b": rng.normal(size=2000)})
    total = 0.0
    for _ in range(n):
        both = left.merge(right, on="key", how="left").sort_values(["b", "a"])
        both["c"] = both["a"] * both["b"]
        total += float(both["c"].head(100).sum()) + float(
            both.drop_duplicates("key")["b"].sum()
        )
    return total
