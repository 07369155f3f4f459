# /// stoilo-case
# idea = "signal processing, spectra"
# level = "numeric"
# ///
"""Denoise by FFT, find peaks, Welch spectrum, spectrogram."""
import numpy as np


def find_peaks(x, height):
    inner = (x[1:-1] > x[:-2]) & (x[1:-1] > x[2:]) & (x[1:-1] > height)
    return np.flatnonzero(inner) + 1


def welch(x, fs, nperseg=256, noverlap=128):
    win = np.hanning(nperseg)
    step = nperseg - noverlap
    frames = np.lib.stride_tricks.sliding_window_view(x, nperseg)[::step]
    spec = np.abs(np.fft.rfft(frames * win, axis=-1)) ** 2
    return np.fft.rfftfreq(nperseg, 1 / fs), spec.mean(axis=0) / (fs * (win**2).sum())


def run(kwargs):
    fs = 1000.0
    t = np.arange(0, 2, 1 / fs)
    rng = np.random.default_rng(3)
    clean = np.sin(2 * np.pi * 50 * t) + 0.5 * np.sin(2 * np.pi * 120 * t)
    noisy = clean + 0.8 * rng.standard_normal(t.size)
    spectrum = np.fft.rfft(noisy)
    freqs = np.fft.rfftfreq(noisy.size, d=1 / fs)
    power = np.abs(spectrum) ** 2 / t.size
    spectrum[power < 20] = 0
    back = np.fft.irfft(spectrum, n=noisy.size)
    peaks = freqs[find_peaks(power, 20)]
    fw, pw = welch(noisy, fs)
    chirp = np.cos(2 * np.pi * (20 * t + 60 * t**2))
    spectrogram = np.abs(np.fft.fftshift(np.fft.fft(chirp.reshape(-1, 100) * np.hamming(100)), axes=-1))
    return {
        "peaks": peaks,
        "snr_db": 10 * np.log10(np.sum(clean**2) / np.sum((back - clean) ** 2)),
        "welch_peak": fw[pw.argmax()],
        "ridge": spectrogram[:, 50:].argmax(axis=1),
    }
