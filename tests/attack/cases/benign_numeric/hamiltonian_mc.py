# /// stoilo-case
# idea = "Markov chain Monte Carlo"
# level = "numeric"
# ///
"""HMC for Bayesian logistic regression."""
import numpy as np


def make_data(rng, n=200, d=4):
    X = np.c_[np.ones(n), rng.normal(size=(n, d - 1))]
    w = np.array([-0.5, 1.0, -2.0, 0.7])
    y = rng.binomial(1, 1 / (1 + np.exp(-X @ w)))
    return X, y, w


def run(kwargs):
    rng = np.random.default_rng(0)
    X, y, w_true = make_data(rng)

    def logp(w):
        z = X @ w
        return (y * z - np.logaddexp(0, z)).sum() - 0.5 * w @ w / 10

    def grad(w):
        return X.T @ (y - 1 / (1 + np.exp(-(X @ w)))) - w / 10

    w = np.zeros(4)
    samples, accept = [], 0
    eps, L = 0.05, 12
    for it in range(400):
        p = rng.standard_normal(4)
        q, r = w.copy(), p.copy()
        r += 0.5 * eps * grad(q)
        for step in range(L):
            q += eps * r
            r += (eps if step < L - 1 else eps / 2) * grad(q)
        dH = logp(q) - 0.5 * r @ r - logp(w) + 0.5 * p @ p
        if np.log(rng.uniform()) < dH:
            w = q
            accept += 1
        if it >= 100:
            samples.append(w)
    S = np.asarray(samples)
    print("acceptance: %.2f" % (accept / 400))
    return {"mean": S.mean(0), "sd": S.std(0, ddof=1), "cover": bool(np.all(np.abs(S.mean(0) - w_true) < 4 * S.std(0)))}
