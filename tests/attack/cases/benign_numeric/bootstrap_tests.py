# /// stoilo-case
# idea = "resampling statistics"
# level = "numeric"
# ///
"""BCa bootstrap, permutation test, jackknife, cross-validated ridge, kernel density, ECDF."""
import math
from functools import partial
from statistics import NormalDist

import numpy as np

nd = NormalDist()


def bca(x, stat, n_boot, rng, alpha=0.05):
    boots = np.array([stat(rng.choice(x, x.size)) for _ in range(n_boot)])
    theta = stat(x)
    z0 = nd.inv_cdf(np.mean(boots < theta).item())
    jack = np.array([stat(np.delete(x, i)) for i in range(x.size)])
    d = jack.mean() - jack
    a = (d**3).sum() / (6 * (d**2).sum() ** 1.5)
    z = [nd.inv_cdf(q) for q in (alpha / 2, 1 - alpha / 2)]
    qs = [nd.cdf(z0 + (z0 + zi) / (1 - a * (z0 + zi))) for zi in z]
    return np.quantile(boots, qs)


def permutation_test(a, b, n, rng):
    pooled = np.hstack([a, b])
    observed = a.mean() - b.mean()
    count = 0
    for _ in range(n):
        p = rng.permutation(pooled)
        count += abs(p[: a.size].mean() - p[a.size :].mean()) >= abs(observed)
    return (count + 1) / (n + 1)


def ridge_cv(X, y, lambdas, folds=5):
    parts = np.array_split(np.arange(len(y)), folds)
    scores = {}
    for lam in lambdas:
        errs = []
        for test in parts:
            train = np.setdiff1d(np.arange(len(y)), test)
            A = X[train].T @ X[train] + lam * np.eye(X.shape[1])
            w = np.linalg.solve(A, X[train].T @ y[train])
            errs.append(np.mean((y[test] - X[test] @ w) ** 2))
        scores[lam] = float(np.mean(errs))
    return min(scores, key=scores.get), scores


def run(kwargs):
    rng = np.random.default_rng(21)
    x = rng.lognormal(size=60)
    ci = bca(x, partial(np.percentile, q=50), 400, rng)
    p = permutation_test(rng.normal(0, 1, 20), rng.normal(0.8, 1, 25), 300, rng)
    X = rng.normal(size=(60, 5))
    y = X @ [1, 0, -1, 0.5, 0] + 0.3 * rng.normal(size=60)
    best, scores = ridge_cv(X, y, np.logspace(-3, 2, 6).tolist())
    h = 1.06 * x.std(ddof=1) * x.size ** (-1 / 5)
    grid = np.linspace(0, 5, 6)
    kde = np.exp(-0.5 * ((grid[:, None] - x) / h) ** 2).sum(1) / (x.size * h * math.sqrt(2 * math.pi))
    xs = np.sort(x)
    ecdf = np.searchsorted(xs, grid, side="right") / xs.size
    ks = np.max(np.abs(np.arange(1, 61) / 60 - (1 - np.exp(-xs))))
    corr = np.corrcoef(X, rowvar=False)
    return {"ci": ci, "p": p, "best": best, "scores": scores, "kde": kde, "ecdf": ecdf, "ks": ks, "corr": corr[0], "trim": np.mean(xs[6:-6]), "mode": np.histogram_bin_edges(x, "fd")[:3]}
