import numpy as np
from scipy.integrate import odeint, solve_ivp


def run(n):
    def stiff(t, y):
        return [y[1], 50 * (1 - y[0] ** 2) * y[1] - y[0]]

    def chemistry(y, t):
        a = -0.04 * y[0] + 1e4 * y[1] * y[2]
        c = 3e7 * y[1] ** 2
        return [a, -a - c, c]

    total = 0.0
    for k in range(n):
        total += float(solve_ivp(stiff, (0, 10), [2.0, k / n], method="LSODA").y[0, -1])
        total += float(odeint(chemistry, [1.0, k / n, 0.0], [0, 4, 40, 400])[-1, 0])
        total += float(solve_ivp(stiff, (0, 1), [0.5, k / n]).y[0, -1])
    return total + float(np.pi)
