# /// stoilo-case
# idea = "signal processing, filters"
# level = "numeric"
# ///
"""Butterworth low-pass by bilinear transform, forward-backward filtering, Hilbert envelope."""
import numpy as np


def butter(order, wc):
    warped = 2 * np.tan(wc / 2)
    k = np.arange(1, order + 1)
    poles = warped * np.exp(1j * np.pi * (2 * k + order - 1) / (2 * order))
    zd = (2 + poles) / (2 - poles)
    gain = np.real(np.prod(warped / (2 - poles)))
    return gain * np.poly(-np.ones(order)).real, np.poly(zd).real


def lfilter(b, a, x):
    y = np.zeros_like(x)
    b, a = b / a[0], a / a[0]
    z = np.zeros(max(len(a), len(b)) - 1)
    for n, xn in enumerate(x):
        y[n] = b[0] * xn + z[0]
        z[:-1] = z[1:] + b[1:-1] * xn - a[1:-1] * y[n]
        z[-1] = b[-1] * xn - a[-1] * y[n]
    return y


def hilbert(x):
    n = len(x)
    h = np.zeros(n)
    h[0] = 1
    h[1 : (n + 1) // 2] = 2
    if n % 2 == 0:
        h[n // 2] = 1
    return np.fft.ifft(np.fft.fft(x) * h)


def run(kwargs):
    b, a = butter(4, 0.2 * np.pi)
    w = np.linspace(0, np.pi, 64)
    response = np.polyval(b[::-1], np.exp(-1j * w)) / np.polyval(a[::-1], np.exp(-1j * w))
    rng = np.random.default_rng(1)
    x = np.sin(0.05 * np.pi * np.arange(300)) + 0.3 * rng.normal(size=300)
    y = lfilter(b, a, lfilter(b, a, x)[::-1])[::-1]
    return {
        "gain": 20 * np.log10(np.maximum(np.abs(response), 1e-12)),
        "phase": np.unwrap(np.angle(response))[:20],
        "stable": bool((np.abs(np.roots(a)) < 1).all()),
        "envelope": np.abs(hilbert(y)).round(6)[100:110],
    }
