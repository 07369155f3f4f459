import numpy as np
import pandas as pd


def run(n):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "site": rng.integers(0, 50, 20_000),
            "kind": rng.choice(["a", "b", "c"], 20_000),
            "value": rng.normal(size=20_000),
        }
    )
    total = 0.0
    for _ in range(n):
        by = frame.groupby(["site", "kind"])["value"].agg(["mean", "std", "count"])
        wide = by.reset_index().pivot_table(index="site", columns="kind", values="mean")
        total += float(by.sum().sum()) + float(wide.max().max())
    return total
