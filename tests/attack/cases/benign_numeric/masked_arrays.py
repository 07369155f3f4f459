# /// stoilo-case
# idea = "masked arrays"
# level = "numeric"
# ///
"""Sea surface temperatures with gaps: numpy.ma from end to end."""
import numpy as np
import numpy.ma as ma


def run(kwargs):
    rng = np.random.default_rng(6)
    sst = 15 + 5 * rng.standard_normal((4, 6))
    sst[rng.random(sst.shape) < 0.25] = -999.0
    m = ma.masked_values(sst, -999.0)
    m2 = ma.masked_where((m > 22) | (m < 8), m)
    anomalies = m2 - m2.mean(axis=0)
    filled = anomalies.filled(0.0)
    print(ma.array([1, 2, 3], mask=[0, 1, 0]))
    rows = ma.mask_rowcols(ma.masked_invalid(np.array([[1.0, np.nan], [3.0, 4.0]])), 0)
    x = ma.array([1.0, 2.0, 3.0, 4.0], mask=[False, False, True, False])
    x[0] = ma.masked
    y = ma.concatenate([x, ma.arange(2)])
    return {
        "count": m2.count(axis=1),
        "mean": float(m2.mean()),
        "std": m2.std(axis=0).filled(-1),
        "filled": filled,
        "median": float(ma.median(m2)),
        "cov": ma.cov(m2[:2]).filled(0),
        "sum": ma.sum(y).item(),
        "compressed": y.compressed(),
        "is": x[0] is ma.masked,
        "mask": ma.getmaskarray(x),
        "rows": rows.filled(-1),
        "log": np.ma.log(np.ma.array([-1.0, 1.0, np.e])).filled(-9),
        "avg": ma.average(ma.array([1, 2, 3], mask=[0, 0, 1]), weights=[3, 1, 1]),
        "argmax": int(m2.argmax()),
        "notmasked": [(s.start, s.stop) for s in ma.flatnotmasked_contiguous(y)],
        "type": isinstance(y, ma.MaskedArray),
        "repr": repr(x),
    }
