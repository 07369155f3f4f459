"""Filters, spectra, systems in time, transforms."""

import numpy as np
from scipy import fft, signal


def _tone():
    t = np.arange(0, 1, 1 / 500)
    noise = np.random.default_rng(6).normal(0, 0.3, t.size)
    return t, np.sin(2 * np.pi * 50 * t) + 0.5 * np.sin(2 * np.pi * 120 * t) + noise


def filters(args):
    _, x = _tone()
    sections = signal.butter(4, 80, fs=500, output="sos")
    b, a = signal.cheby1(3, 1, [40, 60], btype="bandpass", fs=500)
    taps = signal.firwin(31, 60, fs=500)
    return [
        signal.sosfiltfilt(sections, x)[::10].tolist(),
        signal.filtfilt(b, a, x)[::10].tolist(),
        signal.lfilter(taps, 1.0, x)[::10].tolist(),
        signal.savgol_filter(x, 21, 3)[::10].tolist(),
        signal.medfilt(x, 5)[::10].tolist(),
    ]


def spectra(args):
    _, x = _tone()
    frequencies, power = signal.welch(x, fs=500, nperseg=128)
    peaks, found = signal.find_peaks(power, prominence=0.001)
    _, _, picture = signal.stft(x, fs=500, nperseg=64)
    coherence = signal.coherence(x, np.roll(x, 3), fs=500, nperseg=64)[1]
    return [
        frequencies[peaks].tolist(),
        found["prominences"].tolist(),
        np.abs(picture).sum(axis=1).tolist(),
        coherence.tolist(),
    ]


def transforms(args):
    _, x = _tone()
    whole = fft.rfft(x, workers=2)
    back = fft.irfft(whole, n=x.size)
    plane = fft.fft2(x[:64].reshape(8, 8))
    return [
        np.abs(whole)[:60].tolist(),
        float(np.abs(back - x).max()),
        fft.dct(x[:32], type=2, norm="ortho").tolist(),
        np.abs(fft.fftshift(plane)).tolist(),
        fft.next_fast_len(1021),
    ]


def systems_in_time(args):
    system = signal.TransferFunction([1.0], [1.0, 0.4, 2.0])
    t, y = signal.step(system, N=40)
    w, size, phase = signal.bode(system, n=20)
    states = system.to_ss()
    out = signal.lsim(states, np.sin(t), t)[1]
    return y.tolist(), size.tolist(), phase.tolist(), out.tolist(), states.A.tolist()


def correlations_and_envelopes(args):
    t, x = _tone()
    chirp = signal.chirp(t, 5, 1, 60)
    lags = signal.correlate(x, np.roll(x, 7), mode="same")
    return [
        int(np.argmax(lags)),
        np.abs(signal.hilbert(chirp))[::20].tolist(),
        signal.resample_poly(x, 2, 5)[::10].tolist(),
        signal.fftconvolve(x, signal.windows.hann(21), mode="same")[::20].tolist(),
        signal.convolve2d(np.outer(x[:9], x[:9]), np.ones((3, 3)), mode="valid").tolist(),
    ]
