import numpy as np
from scipy import fft, ndimage, signal


def run(n):
    rng = np.random.default_rng(6)
    sections = signal.butter(4, 0.2, output="sos")
    total = 0.0
    for _ in range(n):
        x = rng.normal(size=4000)
        total += float(signal.sosfiltfilt(sections, x).sum())
        total += float(signal.welch(x, nperseg=256)[1].sum())
        total += float(np.abs(fft.rfft(x)).sum()) + len(signal.find_peaks(x)[0])
        image = x[:3600].reshape(60, 60)
        total += float(ndimage.gaussian_filter(image, 2).sum())
        total += float(ndimage.median_filter(image, 3).sum())
    return total
