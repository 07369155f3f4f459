# /// stoilo-case
# idea = "optimisation"
# level = "numeric"
# ///
"""Dense simplex, Nelder-Mead, BFGS with line search, Adam, simulated annealing, golden section."""
import numpy as np

rng = np.random.default_rng(314)


def simplex(c, A, b):
    m, n = A.shape
    T = np.block([[A, np.eye(m), b[:, None]], [-c[None], np.zeros((1, m + 1))]])
    basis = list(range(n, n + m))
    while (T[-1, :-1] < -1e-12).any():
        col = int(T[-1, :-1].argmin())
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(T[:-1, col] > 1e-12, T[:-1, -1] / T[:-1, col], np.inf)
        row = int(ratio.argmin())
        if np.isinf(ratio[row]):
            raise ValueError("unbounded")
        T[row] /= T[row, col]
        for r in range(m + 1):
            if r != row:
                T[r] -= T[r, col] * T[row]
        basis[row] = col
    x = np.zeros(n + m)
    x[basis] = T[:-1, -1]
    return x[:n], T[-1, -1]


def rosen(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosen_grad(x):
    g = np.zeros_like(x)
    g[:-1] = -400 * x[:-1] * (x[1:] - x[:-1] ** 2) - 2 * (1 - x[:-1])
    g[1:] += 200 * (x[1:] - x[:-1] ** 2)
    return g


def bfgs(f, df, x, iters=100):
    H = np.eye(x.size)
    g = df(x)
    for k in range(iters):
        if (gn := np.linalg.norm(g, np.inf)) < 1e-8:
            break
        p = -H @ g
        t = 1.0
        while f(x + t * p) > f(x) + 1e-4 * t * (g @ p):
            t /= 2
        s = t * p
        x_new = x + s
        g_new = df(x_new)
        y = g_new - g
        if (sy := s @ y) > 1e-12:
            rho = 1 / sy
            V = np.eye(x.size) - rho * np.outer(s, y)
            H = V @ H @ V.T + rho * np.outer(s, s)
        x, g = x_new, g_new
    return x, k


def nelder_mead(f, x0, iters=200):
    n = len(x0)
    S = np.vstack([x0, x0 + 0.5 * np.eye(n)])
    F = np.array([f(s) for s in S])
    for _ in range(iters):
        order = F.argsort(kind="stable")
        S, F = S[order], F[order]
        c = S[:-1].mean(0)
        r = 2 * c - S[-1]
        fr = f(r)
        if fr < F[0]:
            e = 3 * c - 2 * S[-1]
            S[-1], F[-1] = (e, f(e)) if f(e) < fr else (r, fr)
        elif fr < F[-2]:
            S[-1], F[-1] = r, fr
        else:
            k = 0.5 * (c + S[-1])
            if f(k) < F[-1]:
                S[-1], F[-1] = k, f(k)
            else:
                S[1:] = 0.5 * (S[1:] + S[0])
                F[1:] = [f(s) for s in S[1:]]
    return S[0], F[0]


def adam(df, x, lr=0.05, b1=0.9, b2=0.999, steps=300):
    m = v = np.zeros_like(x)
    for t in range(1, steps + 1):
        g = df(x)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        x = x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + 1e-8)
    return x


def anneal(f, x, steps=500):
    best, fx = x, f(x)
    fb = fx
    for T in np.geomspace(10, 1e-3, steps):
        y = x + rng.normal(scale=0.3, size=x.shape)
        if (fy := f(y)) < fx or rng.random() < np.exp((fx - fy) / T):
            x, fx = y, fy
            if fx < fb:
                best, fb = x, fx
    return fb


def run(kwargs):
    x, v = simplex(np.array([3.0, 5.0]), np.array([[1.0, 0], [0, 2], [3, 2]]), np.array([4.0, 12, 18]))
    xb, k = bfgs(rosen, rosen_grad, np.array([-1.2, 1.0, 0.5]))
    xn, fn = nelder_mead(rosen, np.array([-1.2, 1.0]))
    return {"lp": [x, v], "bfgs": [xb, k], "nm": [xn, fn], "adam": adam(rosen_grad, np.zeros(2)), "anneal": anneal(rosen, np.array([2.0, 2.0]))}
