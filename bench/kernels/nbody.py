def advance(bodies, dt, steps):
    pairs = [(a, b) for i, a in enumerate(bodies) for b in bodies[i + 1 :]]
    for _ in range(steps):
        for (p, v, m), (q, w, n) in pairs:
            dx = p[0] - q[0]
            dy = p[1] - q[1]
            dz = p[2] - q[2]
            k = dt * (dx * dx + dy * dy + dz * dz) ** -1.5
            v[0] = v[0] - dx * n * k
            v[1] = v[1] - dy * n * k
            v[2] = v[2] - dz * n * k
            w[0] = w[0] + dx * m * k
            w[1] = w[1] + dy * m * k
            w[2] = w[2] + dz * m * k
        for p, v, m in bodies:
            p[0] = p[0] + dt * v[0]
            p[1] = p[1] + dt * v[1]
            p[2] = p[2] + dt * v[2]


def run(n):
    bodies = [
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 39.47),
        ([4.84, -1.16, -0.10], [0.606, 2.81, -0.02], 0.0376),
        ([8.34, 4.12, -0.40], [-1.01, 1.82, 0.008], 0.0112),
        ([12.89, -15.11, -0.22], [1.08, 0.86, -0.01], 0.0017),
        ([15.37, -25.9, 0.17], [0.97, 0.59, -0.03], 0.002),
    ]
    advance(bodies, 0.01, n)
    return bodies[0][0]
