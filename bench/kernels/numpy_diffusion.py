import numpy as np


def run(n):
    field = np.zeros((220, 220))
    field[90:130, 90:130] = 100.0
    for _ in range(n):
        middle = field[1:-1, 1:-1]
        around = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
        field[1:-1, 1:-1] = middle + 0.2 * (around - 4 * middle)
    return float(field.sum()), float(field[110, 110])
