# /// stoilo-case
# idea = "masked arrays"
# level = "numeric"
# ///
"""Quality flags applied step by step, hard masks, fill values, masked statistics."""
import numpy as np
from numpy import ma


def run(kwargs):
    raw = ma.array(np.arange(12.0).reshape(3, 4), mask=False, fill_value=-1)
    raw[1, 2] = ma.masked
    raw.mask[0, 0] = True
    raw[raw > 10] = ma.masked
    raw.fill_value = -9
    print(raw)
    hard = ma.array([1, 2, 3], mask=[1, 0, 0], hard_mask=True)
    hard[:] = 7
    trend = ma.polyfit(ma.arange(5), ma.array([1.0, 3, 99, 7, 9], mask=[0, 0, 1, 0, 0]), 1)
    z = (raw - raw.mean()) / raw.std()
    runs = ma.clump_unmasked(raw[0])
    edges = ma.notmasked_edges(raw, axis=1)
    return {
        "filled": raw.filled(),
        "hard": hard.tolist(),
        "trend": trend,
        "z": z.filled(0),
        "runs": [(s.start, s.stop) for s in runs],
        "edges": [[int(v) for v in e] for e in edges[0]],
        "anom": raw.anom(axis=1).filled(0),
        "cum": raw.cumsum(axis=1).filled(-1),
        "sorted": ma.sort(raw[0][::-1]).filled(-1),
        "unique": ma.unique(ma.array([3, 1, 3, 2], mask=[0, 0, 0, 1])).tolist(),
        "corr": ma.corrcoef(raw[0], raw[2]).filled(0),
        "any": bool(ma.is_masked(raw)),
        "dot": ma.dot(raw, raw.T).filled(0),
        "where": ma.where(raw > 5, raw, 0).filled(-1),
        "inside": ma.masked_inside([1, 5, 9], 4, 6).compressed(),
        "count": int(ma.count_masked(raw)),
        "power": ma.power(raw, 2).sum(),
        "mr": ma.mr_[ma.array([1, 2]), 3].tolist(),
        "alltrue": bool(ma.allclose(raw, raw)),
    }
