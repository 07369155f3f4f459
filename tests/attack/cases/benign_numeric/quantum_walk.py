# /// stoilo-case
# idea = "quantum mechanics"
# level = "numeric"
# ///
"""Harmonic oscillator by finite differences, split-step evolution, Grover's search."""
import numpy as np
from functools import reduce

I2 = np.eye(2)
X = np.array([[0, 1], [1, 0]], dtype=complex)
Z = np.diag([1, -1]).astype(complex)
H = np.array([[1, 1], [1, -1]]) / np.sqrt(2)


def kron(*ops):
    return reduce(np.kron, ops)


def commutator(a, b):
    return a @ b - b @ a


def run(kwargs):
    n = 200
    x, dx = np.linspace(-8, 8, n, retstep=True)
    T = (-0.5 / dx**2) * (np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1) - 2 * np.eye(n))
    E, psi = np.linalg.eigh(T + np.diag(0.5 * x**2))
    k = 2 * np.pi * np.fft.fftfreq(n, dx)
    wave = np.exp(-((x - 2) ** 2) / 2 + 1j * x)
    wave /= np.sqrt((np.abs(wave) ** 2).sum() * dx)
    dt = 0.01
    half = np.exp(-0.5j * dt * 0.5 * x**2)
    for _ in range(100):
        wave = half * np.fft.ifft(np.exp(-0.5j * dt * k**2) * np.fft.fft(half * wave))
    mean_x = (np.abs(wave) ** 2 * x).sum() * dx
    q, target = 4, 11
    state = kron(*[H] * q)[:, 0].astype(complex)
    oracle = np.eye(2**q)
    oracle[target, target] = -1
    diffusion = 2 * np.full((2**q, 2**q), 2.0**-q) - np.eye(2**q)
    for _ in range(3):
        state = diffusion @ oracle @ state
    bell = kron(I2, I2)[:, 0] / np.sqrt(2) + kron(X, X)[:, 0] / np.sqrt(2)
    rho = np.outer(bell, bell.conj()).reshape(2, 2, 2, 2).trace(axis1=1, axis2=3)
    ising = -sum(kron(*[Z if j in (i, i + 1) else I2 for j in range(4)]) for i in range(3)) - 0.5 * sum(kron(*[X if j == i else I2 for j in range(4)]) for i in range(4))
    return {"E": E[:5], "norm": (np.abs(wave) ** 2).sum() * dx, "mean_x": mean_x, "grover": np.abs(state[target]) ** 2, "purity": np.trace(rho @ rho).real, "ground": np.linalg.eigvalsh(ising)[0], "comm": bool(np.array_equal(commutator(X, Z), 2 * X @ Z))}
