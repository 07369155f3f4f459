# /// stoilo-case
# idea = "Markov chain Monte Carlo"
# level = "numeric"
# ///
"""Random-walk Metropolis on a banana, with Gelman-Rubin and effective sample size."""
import numpy as np


class Banana:
    def __init__(self, b=0.1):
        self._b = b

    def __call__(self, x):
        return -0.5 * (x[..., 0] ** 2 / 100 + (x[..., 1] + self._b * x[..., 0] ** 2 - 100 * self._b) ** 2)


def metropolis(logp, x0, n, scale, rng):
    x = np.array(x0, dtype=float)
    lp = logp(x)
    chain = np.empty((n,) + x.shape)
    accepted = 0
    for i in range(n):
        prop = x + scale * rng.standard_normal(x.shape)
        lq = logp(prop)
        if np.log(rng.random()) < lq - lp:
            x, lp = prop, lq
            accepted += 1
        chain[i] = x
    return chain, accepted / n


def gelman_rubin(chains):
    m, n = chains.shape[:2]
    B = n * chains.mean(axis=1).var(axis=0, ddof=1)
    W = chains.var(axis=1, ddof=1).mean(axis=0)
    return np.sqrt(((n - 1) / n * W + B / n) / W)


def ess(x):
    x = x - x.mean()
    n = len(x)
    f = np.fft.fft(x, 2 * n)
    acf = np.fft.ifft(f * np.conjugate(f))[:n].real
    acf /= acf[0]
    cut = np.argmax(acf < 0.05) or n
    return n / (1 + 2 * acf[1:cut].sum())


def run(kwargs):
    streams = np.random.SeedSequence(2024).spawn(4)
    chains, rates = zip(*(metropolis(Banana(), [0, 0], 1500, 3.0, np.random.default_rng(s)) for s in streams))
    chains = np.stack(chains)
    return {
        "rates": list(rates),
        "rhat": gelman_rubin(chains),
        "ess": [ess(c[:, 0]) for c in chains],
        "mean": chains.reshape(-1, 2).mean(0),
        "hpd": np.percentile(chains[..., 1], [2.5, 50, 97.5]),
    }
