# /// stoilo-case
# idea = "partial differential equation, spectral"
# level = "numeric"
# ///
"""Viscous Burgers by pseudo-spectral method with 2/3 dealiasing and integrating factor."""
import numpy as np
from numpy.fft import rfft, irfft, rfftfreq


def run(kwargs):
    N, nu, dt = 128, 0.05, 1e-3
    x = np.linspace(0, 2 * np.pi, N, endpoint=False)
    k = rfftfreq(N, d=1.0 / N)
    dealias = (k < N / 3).astype(float)
    E, E2 = np.exp(-nu * k**2 * dt), np.exp(-nu * k**2 * dt / 2)
    u_hat = rfft(np.sin(x))

    def rhs(v):
        return -0.5j * k * dealias * rfft(irfft(v, N) ** 2)

    for _ in range(400):
        a = dt * rhs(u_hat)
        b = dt * rhs(E2 * (u_hat + a / 2))
        c = dt * rhs(E2 * u_hat + b / 2)
        d = dt * rhs(E * u_hat + E2 * c)
        u_hat = E * u_hat + (E * a + 2 * E2 * (b + c) + d) / 6
    u = irfft(u_hat, N)
    spectrum = np.abs(u_hat) ** 2 / N**2
    return {"u": u, "energy": 0.5 * np.trapezoid(u**2, x), "tail": spectrum[-10:].sum() < 1e-12}
