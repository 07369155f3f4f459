# /// stoilo-case
# idea = "state estimation"
# level = "numeric"
# ///
"""Kalman filter and Rauch-Tung-Striebel smoother for a constant-velocity target."""
from typing import NamedTuple
import numpy as np


class Gaussian(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray


def run(kwargs):
    dt, n = 0.1, 100
    F = np.array([[1, 0, dt, 0], [0, 1, 0, dt], [0, 0, 1, 0], [0, 0, 0, 1]])
    H = np.eye(2, 4)
    q = 0.5
    G = np.array([[dt**2 / 2, 0], [0, dt**2 / 2], [dt, 0], [0, dt]])
    Q = q * G @ G.T
    R = 0.3**2 * np.eye(2)
    rng = np.random.RandomState(42)
    truth = np.zeros((n, 4))
    truth[0] = [0, 0, 1, 0.5]
    for k in range(1, n):
        truth[k] = F @ truth[k - 1] + G @ rng.randn(2) * np.sqrt(q)
    z = truth[:, :2] + rng.multivariate_normal(np.zeros(2), R, size=n)

    belief = Gaussian(np.zeros(4), 10 * np.eye(4))
    priors, posts, nis = [], [], []
    for zk in z:
        pred = Gaussian(F @ belief.mean, F @ belief.cov @ F.T + Q)
        S = H @ pred.cov @ H.T + R
        K = np.linalg.solve(S.T, (pred.cov @ H.T).T).T
        innov = zk - H @ pred.mean
        nis.append(innov @ np.linalg.inv(S) @ innov)
        IKH = np.eye(4) - K @ H
        belief = Gaussian(pred.mean + K @ innov, IKH @ pred.cov @ IKH.T + K @ R @ K.T)
        priors.append(pred)
        posts.append(belief)

    smooth = [posts[-1]]
    for post, prior in zip(posts[-2::-1], priors[:0:-1]):
        C = post.cov @ F.T @ np.linalg.pinv(prior.cov)
        nxt = smooth[-1]
        smooth.append(post._replace(mean=post.mean + C @ (nxt.mean - prior.mean), cov=post.cov + C @ (nxt.cov - prior.cov) @ C.T))
    smooth.reverse()
    rmse = lambda gs: np.sqrt(np.mean([(g.mean[:2] - t[:2]) ** 2 for g, t in zip(gs, truth)]))
    return {"raw": np.sqrt(np.mean((z - truth[:, :2]) ** 2)), "filter": rmse(posts), "smooth": rmse(smooth), "nis": float(np.mean(nis))}
