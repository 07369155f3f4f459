# /// stoilo-case
# idea = "numpy fft"
# run = "task"
# level = "numeric"
# ///
import numpy as np


def run(kwargs):
    t = np.linspace(0, 1, 64, endpoint=False)
    signal = np.sin(2 * np.pi * 5 * t) + 0.5 * np.cos(2 * np.pi * 9 * t)
    spectrum = np.fft.rfft(signal)
    peaks = np.argsort(np.abs(spectrum))[-2:]
    back = np.fft.irfft(spectrum)
    return [
        sorted(int(p) for p in peaks),
        np.allclose(back, signal),
        np.fft.fftfreq(4),
        np.fft.fftshift(np.arange(4)),
    ]
