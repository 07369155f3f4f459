"""Functions with arrays: what travels as data, what as source."""

import math

import numpy as np
from numpy import linalg

KERNEL = np.array([1.0, -2.0, 1.0])
GRID = np.linspace(0, 1, 50)
DTYPE = np.float32


def solve(kw):
    import numpy as np_

    return np_.linalg.solve(kw["a"], kw["b"]).tolist()


def convolve(kw):
    return np.convolve(GRID**2, KERNEL, mode="valid")[:4].round(9)


def gradient(kw, step=np.array([0.5, 0.25])):
    w = kw["w"].copy()
    for _ in range(kw["n"]):
        w -= step * (2 * w + 1)
    return {"w": w, "norm": float(linalg.norm(w)), "kind": str(w.dtype)}


class Layer:
    def __init__(self, rng_seed):
        rng = np.random.default_rng(rng_seed)
        self.w = rng.normal(size=(3, 2)).astype(DTYPE)
        self.b = np.zeros(2, DTYPE)

    def __call__(self, x):
        return np.tanh(x @ self.w + self.b)


def forward(kw):
    out = kw["layer"](kw["x"])
    return {"out": out, "shape": list(out.shape)}


def scalars(kw):
    return [
        np.float64(2.5) * kw["n"],
        int(np.int64(7)),
        bool(np.any(kw["mask"])),
        kw["mask"].sum(),
    ]


def seeded(kw):
    rng = np.random.default_rng(kw["seed"])
    return rng.integers(0, 100, 5)


CASES = [
    ("solve", solve, {"a": np.array([[3.0, 1], [1, 4]]), "b": np.array([1.0, 2])}),
    ("convolve", convolve, {}),
    ("seeded", seeded, {"seed": 3}),
    ("ufunc_argument", lambda kw: kw["f"](kw["x"]), {"f": np.sin, "x": np.arange(3.0)}),
]
STATEFUL = [
    ("default_array", gradient, {"w": np.array([1.0, 2.0]), "n": 5}),
    ("instance_with_arrays", forward, {"layer": Layer(1), "x": np.ones((4, 3), DTYPE)}),
    ("scalars", scalars, {"n": 3, "mask": np.array([True, False])}),
]
