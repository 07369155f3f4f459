# /// stoilo-case
# idea = "clustering"
# level = "numeric"
# ///
"""k-means++ and a Gaussian mixture by EM, with log-sum-exp."""
import numpy as np

rng = np.random.default_rng(seed=11)


def kmeans(X, k, iters=50):
    centers = [X[rng.integers(len(X))]]
    while len(centers) < k:
        d2 = np.min([((X - c) ** 2).sum(1) for c in centers], axis=0)
        centers.append(X[rng.choice(len(X), p=d2 / d2.sum())])
    C = np.array(centers)
    for _ in range(iters):
        labels = ((X[:, None] - C[None]) ** 2).sum(-1).argmin(1)
        new = np.stack([X[labels == j].mean(0) if np.any(labels == j) else C[j] for j in range(k)])
        if np.allclose(new, C):
            break
        C = new
    return C, labels


def logsumexp(a, axis=None, keepdims=False):
    m = np.max(a, axis=axis, keepdims=True)
    out = m + np.log(np.sum(np.exp(a - m), axis=axis, keepdims=True))
    return out if keepdims else np.squeeze(out, axis=axis)


def em(X, C, iters=25):
    n, d = X.shape
    k = len(C)
    mu, cov, pi = C.copy(), np.repeat(np.eye(d)[None], k, axis=0), np.full(k, 1 / k)
    ll = []
    for _ in range(iters):
        L = np.linalg.cholesky(cov)
        diff = X[None] - mu[:, None]
        sol = np.linalg.solve(L, diff.transpose(0, 2, 1))
        logdet = 2 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(-1)
        logp = np.log(pi)[:, None] - 0.5 * ((sol**2).sum(1) + logdet[:, None] + d * np.log(2 * np.pi))
        norm = logsumexp(logp, axis=0)
        ll.append(norm.sum())
        r = np.exp(logp - norm)
        nk = r.sum(1)
        mu = r @ X / nk[:, None]
        diff = X[None] - mu[:, None]
        cov = np.einsum("kn,kni,knj->kij", r, diff, diff) / nk[:, None, None] + 1e-6 * np.eye(d)
        pi = nk / n
    return mu, pi, np.array(ll)


def run(kwargs):
    X = np.concatenate([rng.normal(m, 0.6, size=(80, 2)) for m in [(0, 0), (4, 0), (2, 3)]])
    rng.shuffle(X)
    C, labels = kmeans(X, 3)
    mu, pi, ll = em(X, C)
    order = np.lexsort(mu.T[::-1])
    return {"centers": mu[order], "weights": pi[order], "monotone": bool((np.diff(ll) > -1e-9).all()), "sizes": np.bincount(labels, minlength=3)}
