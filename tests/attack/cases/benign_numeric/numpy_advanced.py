# /// stoilo-case
# idea = "numpy advanced"
# run = "task"
# level = "numeric"
# ///
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray


def smooth(x: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    return sliding_window_view(x, k).mean(axis=1)


def run(kwargs):
    x = np.linspace(0, 1, 8)
    x = x.reshape(2, 4)
    flat = x.ravel()
    grid_x, grid_y = np.meshgrid(np.arange(3), np.arange(2))
    total = np.add.reduce(flat)
    acc = np.zeros(3)
    np.add.at(acc, [0, 0, 2], 1)
    v = np.vectorize(lambda a, b: a + 2 * b)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.divide([1.0, 0.0], [0.0, 0.0])
    text = np.array(["b", "a"])
    return [
        smooth(flat, 3),
        grid_x * 10 + grid_y,
        total,
        acc,
        v([1, 2], [3, 4]),
        ratio,
        np.sort(text),
        np.strings.upper(text),
        np.datetime64("2024-01-01") + np.timedelta64(3, "D"),
        np.histogram([1, 2, 2, 5], bins=3)[0],
        np.interp(1.5, [1, 2], [10, 20]),
        np.cov([[1, 2, 3], [3, 2, 1]]),
        np.percentile(flat, [25, 75]),
        np.cumsum(flat)[-1],
        np.clip(flat, 0.2, 0.5),
        np.array2string(flat, precision=2),
        np.finfo(np.float32).eps,
        np.resize([1, 2], 5),
        str(np.int64(3)),
    ]
