# /// stoilo-case
# idea = "particle dynamics"
# level = "numeric"
# ///
"""Plummer sphere with softened gravity, leapfrog; energy and angular momentum conservation."""
import numpy as np


def acceleration(pos, mass, eps=0.05):
    d = pos[None, :, :] - pos[:, None, :]
    r2 = np.einsum("ijk,ijk->ij", d, d) + eps**2
    inv = r2**-1.5
    np.fill_diagonal(inv, 0)
    return np.einsum("ijk,ij,j->ik", d, inv, mass)


def energy(pos, vel, mass, eps=0.05):
    kin = 0.5 * np.sum(mass * np.sum(vel**2, axis=1))
    i, j = np.triu_indices(len(mass), k=1)
    r = np.sqrt(np.sum((pos[i] - pos[j]) ** 2, axis=1) + eps**2)
    return kin - np.sum(mass[i] * mass[j] / r)


def run(kwargs):
    rng = np.random.default_rng(1911)
    n = 40
    r = 1 / np.sqrt(rng.uniform(0.01, 0.99, n) ** (-2 / 3) - 1)
    u = rng.normal(size=(n, 3))
    pos = r[:, None] * u / np.linalg.norm(u, axis=1, keepdims=True)
    vel = 0.3 * rng.normal(size=(n, 3))
    mass = np.full(n, 1 / n)
    pos -= np.average(pos, axis=0, weights=mass)
    vel -= np.average(vel, axis=0, weights=mass)
    e0, L0 = energy(pos, vel, mass), (mass[:, None] * np.cross(pos, vel)).sum(0)
    acc = acceleration(pos, mass)
    dt = 0.01
    for step in range(150):
        vel += 0.5 * dt * acc
        pos += dt * vel
        acc = acceleration(pos, mass)
        vel += 0.5 * dt * acc
    radii = np.sort(np.linalg.norm(pos, axis=1))
    print(f"dE/E = {abs((energy(pos, vel, mass) - e0) / e0):.2e}")
    return {"dL": np.abs((mass[:, None] * np.cross(pos, vel)).sum(0) - L0).max() < 1e-12, "half": radii[n // 2], "pos": pos[:2]}
