import numpy as np


def run(n):
    rng = np.random.default_rng(5)
    place = rng.normal(size=(200, 3))
    speed = np.zeros((200, 3))
    for _ in range(n):
        gap = place[None] - place[:, None]
        distance = np.einsum("ijk,ijk->ij", gap, gap) + 0.01
        speed += 0.001 * (gap / distance[..., None] ** 1.5).sum(axis=1)
        place += 0.01 * speed
    return float(np.einsum("ij,ij->", speed, speed))
