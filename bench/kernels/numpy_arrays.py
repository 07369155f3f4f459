import numpy as np


def run(n):
    a = np.arange(40000.0).reshape(200, 200) / 40000
    small = a[:16, :16]
    total = 0.0
    for i in range(n):
        b = a * a.T + i
        c = np.sqrt(np.abs(b)) + b[::-1]
        c[c > i] = 0.5
        total = total + float(c[1:-1, 1:-1].mean()) + float((small @ small.T).sum())
    return total
