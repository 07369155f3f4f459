# /// stoilo-case
# idea = "partial differential equation, hyperbolic"
# level = "numeric"
# ///
"""2-D wave equation, leapfrog with np.roll and a sponge layer."""
import numpy as np

rng = np.random.default_rng(7)


def laplacian(u):
    return (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)


def run(kwargs):
    n = 64
    yy, xx = np.mgrid[0:n, 0:n]
    bump = np.exp(-((xx - n / 2) ** 2 + (yy - n / 3) ** 2) / 20.0)
    prev, cur = bump.copy(), bump.copy()
    c2 = 0.25
    edge = np.minimum.reduce([xx, yy, n - 1 - xx, n - 1 - yy])
    sponge = np.where(edge < 8, 1 - 0.02 * (8 - edge), 1.0)
    energy = []
    for step in range(120):
        nxt = (2 * cur - prev + c2 * laplacian(cur)) * sponge
        prev, cur = cur, nxt
        if step % 20 == 0:
            gy, gx = np.gradient(cur)
            energy.append(float(((cur - prev) ** 2).sum() + c2 * (gx**2 + gy**2).sum()))
    probe = rng.integers(0, n, size=(5, 2))
    return {"energy": energy, "samples": cur[probe[:, 0], probe[:, 1]]}
