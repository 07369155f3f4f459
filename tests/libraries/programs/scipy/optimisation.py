"""Fits, roots and optima, with callbacks of the program's own."""

import numpy as np
from scipy.optimize import (
    Bounds,
    LinearConstraint,
    NonlinearConstraint,
    brentq,
    curve_fit,
    differential_evolution,
    fsolve,
    least_squares,
    linear_sum_assignment,
    linprog,
    milp,
    minimize,
    minimize_scalar,
    nnls,
    root,
    root_scalar,
)


def _decay(t, amplitude, rate, floor):
    return amplitude * np.exp(-rate * t) + floor


def fit_a_decay(args):
    t = np.linspace(0, 4, 50)
    noise = np.random.default_rng(3).normal(0, 0.05, t.size)
    best, spread = curve_fit(_decay, t, _decay(t, 2.5, 1.3, 0.5) + noise, p0=[1, 1, 0])
    return best.tolist(), np.sqrt(np.diag(spread)).tolist()


def minimise_with_every_method(args):
    def banana(x):
        return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))

    found = {}
    for method in ("Nelder-Mead", "Powell", "CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP"):
        result = minimize(banana, [1.3, 0.7, 0.8], method=method)
        found[method] = [result.x.tolist(), int(result.nfev), bool(result.success)]
    return found


def constrained_portfolio(args):
    rng = np.random.default_rng(5)
    spread = rng.normal(size=(6, 200))
    risk, gain = np.cov(spread), rng.uniform(0.01, 0.1, 6)
    result = minimize(
        lambda w: w @ risk @ w - 0.5 * gain @ w,
        np.full(6, 1 / 6),
        jac=lambda w: 2 * risk @ w - 0.5 * gain,
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(np.ones(6), 1, 1)],
        method="trust-constr",
    )
    return result.x.tolist(), float(result.fun)


class Circle:
    """Residuals that hold their own data."""

    def __init__(self, points):
        self.points = points
        self.calls = 0

    def residuals(self, centre):
        self.calls += 1
        radii = np.hypot(*(self.points - centre[:2]).T)
        return radii - centre[2]


def circle_by_least_squares(args):
    turn = np.linspace(0, 5, 40)
    rng = np.random.default_rng(0)
    points = np.c_[np.cos(turn) * 3 + 1, np.sin(turn) * 3 - 2]
    circle = Circle(points + rng.normal(0, 0.1, points.shape))
    robust = least_squares(circle.residuals, [0, 0, 1], loss="soft_l1")
    plain = least_squares(circle.residuals, [0, 0, 1], method="lm")
    return robust.x.tolist(), plain.x.tolist(), circle.calls


def roots_of_equations(args):
    def system(x):
        return [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]]

    kepler = [brentq(lambda e, m=m: e - 0.4 * np.sin(e) - m, 0, 7) for m in range(6)]
    newton = root_scalar(lambda x: (x**3 - 2, 3 * x**2), fprime=True, x0=1.0)
    ways = [root(system, [0, 0], method=way).x.tolist() for way in ("hybr", "lm", "krylov")]
    return kepler, newton.root, newton.iterations, fsolve(system, [0, 0]).tolist(), ways


def linear_and_integer_programs(args):
    cost, upper = [-3.0, -5.0, -4.0], [[2, 3, 0], [0, 2, 5], [3, 2, 4]]
    relaxed = linprog(cost, A_ub=upper, b_ub=[8, 10, 15], method="highs")
    whole = milp(
        cost, integrality=[1, 1, 1], constraints=LinearConstraint(upper, ub=[8, 10, 15])
    )
    return relaxed.x.tolist(), relaxed.ineqlin.marginals.tolist(), whole.x.tolist()


def global_optimum_of_many(args):
    def ackley(x):
        a = -0.2 * np.sqrt(0.5 * (x[0] ** 2 + x[1] ** 2))
        b = 0.5 * (np.cos(2 * np.pi * x[0]) + np.cos(2 * np.pi * x[1]))
        return -20.0 * np.exp(a) - np.exp(b) + np.e + 20

    found = differential_evolution(ackley, [(-5, 5), (-5, 5)], rng=1, maxiter=40)
    return found.x.tolist(), found.fun, found.nfev


def small_problems(args):
    cost = np.random.default_rng(2).uniform(size=(8, 8))
    rows, columns = linear_sum_assignment(cost)
    weights, left = nnls(cost, cost @ np.arange(8.0))
    best = minimize_scalar(lambda x: (x - 2) * x * (x + 2) ** 2, bounds=(-1, 2))
    return columns.tolist(), float(cost[rows, columns].sum()), weights.tolist(), best.x


def nonlinear_constraint(args):
    ring = NonlinearConstraint(lambda x: x[0] ** 2 + x[1] ** 2, 1, 2)
    found = minimize(lambda x: x[0] + x[1], [1.0, 0.2], constraints=[ring], method="SLSQP")
    return found.x.tolist(), found.fun


def programs_with_options(args):
    found = linprog([-1, -2], A_ub=[[1, 1]], b_ub=[4], options={"presolve": False})
    whole = milp([-1], bounds=Bounds(0, 3.5), integrality=1, options={"node_limit": 9})
    return found.x.tolist(), whole.x.tolist(), found.message


def minimises_without_derivatives(args):
    def fun(x):
        return float((x[0] - 1) ** 2 + (x[1] + 2) ** 2)

    above = LinearConstraint([1.0, 1.0], 0.0, 5.0)
    found = [
        minimize(fun, [0.0, 0.5], method=method, constraints=above)
        for method in ("COBYLA", "COBYQA")
    ]
    return [(one.x.tolist(), one.fun, one.success) for one in found]
