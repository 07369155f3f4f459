# /// stoilo-case
# idea = "stochastic processes"
# level = "numeric"
# ///
"""Geometric Brownian motion, Black-Scholes against Monte Carlo, trees, GARCH, Markov chains."""
from math import erf, exp, log, sqrt

import numpy as np


def black_scholes(S, K, T, r, sigma):
    d1 = (log(S / K) + (r + sigma**2 / 2) * T) / (sigma * sqrt(T))
    N = lambda x: 0.5 * (1 + erf(x / sqrt(2)))
    return S * N(d1) - K * exp(-r * T) * N(d1 - sigma * sqrt(T))


def binomial_tree(S, K, T, r, sigma, n=200, american=True):
    dt = T / n
    u = np.exp(sigma * np.sqrt(dt))
    p = (np.exp(r * dt) - 1 / u) / (u - 1 / u)
    prices = S * u ** np.arange(-n, n + 1, 2)
    value = np.maximum(K - prices, 0)
    for i in range(n - 1, -1, -1):
        prices = S * u ** np.arange(-i, i + 1, 2)
        value = np.exp(-r * dt) * (p * value[1:] + (1 - p) * value[:-1])
        if american:
            value = np.maximum(value, K - prices)
    return value.item()


def garch(n, omega, alpha, beta, rng):
    r, var = np.zeros(n), np.full(n, omega / (1 - alpha - beta))
    for t in range(1, n):
        var[t] = omega + alpha * r[t - 1] ** 2 + beta * var[t - 1]
        r[t] = np.sqrt(var[t]) * rng.standard_normal()
    return r, var


def stationary(P):
    w, v = np.linalg.eig(P.T)
    pi = np.real(v[:, np.argmin(np.abs(w - 1))])
    return pi / pi.sum()


def run(kwargs):
    rng = np.random.Generator(np.random.PCG64DXSM(2023))
    S, K, T, r, sigma = 100.0, 105.0, 1.0, 0.03, 0.2
    z = rng.standard_normal((2000, 50))
    z = np.concatenate([z, -z])
    steps = (r - sigma**2 / 2) * T / 50 + sigma * np.sqrt(T / 50) * z
    paths = S * np.exp(np.cumsum(steps, axis=1))
    payoff = np.exp(-r * T) * np.maximum(paths[:, -1] - K, 0)
    asian = np.exp(-r * T) * np.maximum(paths.mean(axis=1) - K, 0)
    drawdown = (1 - paths / np.maximum.accumulate(paths, axis=1)).max(axis=1)
    returns, var = garch(500, 1e-5, 0.1, 0.85, rng)
    P = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]])
    state, visits = 0, np.zeros(3, dtype=int)
    for u in rng.random(1000):
        state = int(np.searchsorted(P[state].cumsum(), u))
        visits[state] += 1
    print(f"MC {payoff.mean():.2f} ± {payoff.std() / np.sqrt(payoff.size):.2f}")
    return {
        "bs": black_scholes(S, K, T, r, sigma),
        "asian": asian.mean(),
        "tree": binomial_tree(S, K, T, r, sigma),
        "var95": np.quantile(drawdown, 0.95, method="median_unbiased"),
        "kurtosis": ((returns - returns.mean()) ** 4).mean() / returns.var() ** 2,
        "acf": [np.corrcoef(returns[:-k] ** 2, returns[k:] ** 2)[0, 1] for k in (1, 5)],
        "pi": stationary(P),
        "visits": visits / visits.sum(),
    }
