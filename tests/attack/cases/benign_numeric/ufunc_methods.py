# /// stoilo-case
# idea = "ufunc methods"
# level = "numeric"
# ///
"""at, reduce, reduceat, accumulate, outer, out=, where=, casting, frexp and friends."""
import numpy as np


def run(kwargs):
    idx = np.array([0, 1, 1, 3, 0])
    hist = np.zeros(4)
    np.add.at(hist, idx, [1.0, 2.0, 3.0, 4.0, 5.0])
    peak = np.full(4, -np.inf)
    np.maximum.at(peak, idx, [1, 7, 3, 4, 9])
    a = np.arange(1.0, 13).reshape(3, 4)
    out = np.empty_like(a)
    np.sqrt(a, out=out)
    np.divide(a, a - 5, out=out, where=a != 5)
    safe = np.divide(1.0, a - 1, out=np.zeros_like(a), where=(a - 1) != 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        bad = np.log(np.array([-1.0, 0.0, 1.0]))
    mant, expo = np.frexp(a)
    q, r = np.divmod(a, 3)
    frac, whole = np.modf(a / 4)
    custom = np.frompyfunc(lambda x, y: x * y + 1, 2, 1)(np.arange(3), 2).astype(int)
    return {
        "hist": hist,
        "peak": peak,
        "out": out,
        "safe": safe,
        "bad": bad,
        "prod": np.multiply.reduce(a, axis=1),
        "cummax": np.maximum.accumulate([3, 1, 4, 1, 5]),
        "reduceat": np.add.reduceat(np.arange(8), [0, 4, 1, 5, 2, 6]),
        "outer": np.power.outer([1, 2, 3], [0, 1, 2]),
        "xor": np.bitwise_xor.reduce(np.arange(7)),
        "any": np.logical_or.reduce(a > 11, axis=0),
        "init": np.add.reduce(a, axis=None, initial=100, where=a > 6),
        "mant": np.ldexp(mant, expo) - a,
        "q": q + r + frac + whole,
        "f32": np.add(a, 1, dtype=np.float32).dtype.name,
        "cast": np.can_cast("f8", "f4", "same_kind"),
        "nin": (np.add.nin, np.divmod.nout, np.add.identity, np.add.signature is None),
        "custom": custom,
        "types": np.sqrt.types[:2],
        "name": np.hypot.__name__,
        "is": isinstance(np.sin, np.ufunc),
    }
