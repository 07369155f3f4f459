# /// stoilo-case
# idea = "image processing"
# level = "numeric"
# ///
"""Synthetic image: Sobel, Gaussian blur, Canny-like thinning, Otsu, connected components, Hough."""
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def conv2d(img, kernel, mode="reflect"):
    kh, kw = kernel.shape
    padded = np.pad(img, ((kh // 2,), (kw // 2,)), mode=mode)
    return np.einsum("ijkl,kl->ij", sliding_window_view(padded, kernel.shape), kernel[::-1, ::-1])


def gaussian(size, sigma):
    ax = np.arange(size) - size // 2
    g = np.exp(-(ax**2) / (2 * sigma**2))
    k = np.outer(g, g)
    return k / k.sum()


def otsu(img):
    hist, edges = np.histogram(img, bins=64)
    mids = 0.5 * (edges[1:] + edges[:-1])
    w0, w1 = np.cumsum(hist), np.cumsum(hist[::-1])[::-1]
    m0 = np.cumsum(hist * mids) / np.maximum(w0, 1)
    m1 = (np.cumsum((hist * mids)[::-1]) / np.maximum(w1[::-1], 1))[::-1]
    between = w0[:-1] * w1[1:] * (m0[:-1] - m1[1:]) ** 2
    return mids[:-1][between.argmax()]


def label(mask):
    labels = np.zeros(mask.shape, dtype=int)
    current = 0
    for seed in zip(*np.nonzero(mask)):
        if labels[seed]:
            continue
        current += 1
        stack = [seed]
        while stack:
            y, x = stack.pop()
            if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1] and mask[y, x] and not labels[y, x]:
                labels[y, x] = current
                stack += [(y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
    return labels, current


def run(kwargs):
    yy, xx = np.indices((48, 48))
    img = ((yy - 14) ** 2 + (xx - 14) ** 2 < 64).astype(float)
    img[28:40, 24:42] = 0.7
    img += 0.05 * np.random.default_rng(2).standard_normal(img.shape)
    img = conv2d(img, gaussian(5, 1.0))
    sx = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], float)
    gx, gy = conv2d(img, sx), conv2d(img, sx.T)
    mag, ang = np.hypot(gx, gy), np.arctan2(gy, gx)
    mask = img > otsu(img)
    labels, count = label(mask)
    sizes = np.bincount(labels.ravel())[1:]
    cy, cx = (np.array([np.bincount(labels.ravel(), weights=c.ravel())[1:] for c in (yy, xx)]) / sizes)
    equal = np.interp(img.ravel(), np.sort(img.ravel()), np.linspace(0, 1, img.size)).reshape(img.shape)
    small = img.reshape(12, 4, 12, 4).mean(axis=(1, 3))
    rgb = np.stack([img, img**2, 1 - img], axis=-1)
    gray = rgb @ np.array([0.299, 0.587, 0.114])
    quant = (255 * np.clip(gray, 0, 1)).astype(np.uint8)
    return {"count": count, "sizes": sizes, "cy": cy, "cx": cx, "edges": int((mag > 1).sum()), "ang": ang[20, 10:14], "equal": equal.std(), "small": small[3], "quant": quant[::12, ::12], "rot": np.rot90(quant)[0, :4]}
