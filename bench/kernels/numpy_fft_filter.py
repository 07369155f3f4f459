import numpy as np


def run(n):
    rng = np.random.default_rng(1)
    time = np.linspace(0.0, 1.0, 1 << 15)
    total = 0.0
    for turn in range(n):
        signal = np.sin(2 * np.pi * (5 + turn) * time) + rng.normal(size=time.size)
        spectrum = np.fft.rfft(signal)
        spectrum[np.abs(spectrum) < 0.5 * np.abs(spectrum).max()] = 0
        total += float(np.fft.irfft(spectrum)[100])
    return total
