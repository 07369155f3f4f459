# /// stoilo-case
# idea = "cellular automata"
# level = "numeric"
# ///
import numpy as np
from itertools import product


def step(board):
    n = sum(np.roll(board, (dy, dx), axis=(0, 1)) for dy, dx in product((-1, 0, 1), repeat=2) if (dy, dx) != (0, 0))
    return ((n == 3) | (board.astype(bool) & (n == 2))).astype(np.uint8)


def rule(number, width=31, rows=15):
    table = np.array([int(b) for b in np.binary_repr(number, width=8)[::-1]], dtype=np.uint8)
    row = np.zeros(width, dtype=np.uint8)
    row[width // 2] = 1
    out = [row]
    for _ in range(rows - 1):
        row = table[np.roll(row, 1) * 4 + row * 2 + np.roll(row, -1)]
        out.append(row)
    return np.array(out)


def run(kwargs):
    glider = np.zeros((10, 10), np.uint8)
    glider[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    board = glider
    for _ in range(12):
        board = step(board)
    shifted = np.roll(glider, (3, 3), (0, 1))
    tri = rule(90)
    for line in tri[:8]:
        print("".join(".#"[c] for c in line))
    return {"moved": bool((board == shifted).all()), "pop": int(board.sum()), "rule30": rule(30)[-1], "packed": np.packbits(tri[:, :8]).tobytes()}
