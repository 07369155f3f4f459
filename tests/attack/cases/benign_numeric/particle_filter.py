# /// stoilo-case
# idea = "state estimation"
# level = "numeric"
# ///
import numpy as np


def systematic_resample(weights, rng):
    n = len(weights)
    positions = (rng.random() + np.arange(n)) / n
    return np.searchsorted(np.cumsum(weights), positions)


def run(kwargs):
    rng = np.random.default_rng(12345)
    T, N = 50, 500
    x, ys, xs = 0.1, [], []
    f = lambda x, t: 0.5 * x + 25 * x / (1 + x**2) + 8 * np.cos(1.2 * t)
    for t in range(T):
        x = f(x, t) + rng.normal(scale=np.sqrt(10))
        xs.append(x)
        ys.append(x**2 / 20 + rng.normal())
    particles = rng.normal(0, 2, N)
    est = np.zeros(T)
    neff_log = []
    for t, y in enumerate(ys):
        particles = f(particles, t) + rng.normal(scale=np.sqrt(10), size=N)
        logw = -0.5 * (y - particles**2 / 20) ** 2
        w = np.exp(logw - logw.max())
        w /= w.sum()
        neff = 1.0 / np.sum(w**2)
        neff_log.append(neff)
        est[t] = np.average(particles, weights=w)
        if neff < N / 2:
            particles = particles[systematic_resample(w, rng).clip(0, N - 1)]
    return {"rmse": np.sqrt(np.mean((est - xs) ** 2)), "neff": np.median(neff_log), "est": est}
