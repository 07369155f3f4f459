import numpy as np


def run():
    a = np.arange(40000.0).reshape(200, 200) / 40000
    total = 0.0
    for i in range(30):
        b = a @ a.T
        c = np.sqrt(np.abs(b)) + i
        total = total + float(c[1:-1, 1:-1].mean()) + float(c.sum())
    return total
