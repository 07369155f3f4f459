"""Calculus: derivatives, integrals, limits, series, differential equations."""

import sympy as sp
from sympy.abc import t, x, y


def derivative(args):
    return str(sp.diff(sp.exp(-(x**2)) * sp.sin(3 * x), x, 2))


def gaussian_integral(args):
    a = sp.symbols("a", positive=True)
    return str(sp.integrate(sp.exp(-a * x**2), (x, -sp.oo, sp.oo)))


def rational_integral(args):
    return str(sp.integrate((x**3 + 2) / (x**2 - 5 * x + 6), x))


def limit(args):
    return str(sp.limit((1 + 3 / x) ** x, x, sp.oo))


def series(args):
    return str(sp.series(sp.log(1 + sp.sin(x)), x, 0, 7))


def oscillator(args):
    f = sp.Function("f")
    found = sp.dsolve(f(t).diff(t, 2) + 2 * f(t).diff(t) + 5 * f(t), f(t))
    return str(found)


def laplace(args):
    s = sp.symbols("s")
    return str(sp.laplace_transform(sp.exp(-2 * t) * sp.cos(3 * t), t, s, noconds=True))


def hessian(args):
    found = sp.hessian(x**2 * y + sp.sin(x * y), (x, y))
    return [str(one) for one in found]


def numeric_integral(args):
    return str(sp.Integral(sp.exp(-(x**2)) * sp.log(1 + x), (x, 0, 1)).evalf(30))


def summation(args):
    k, n = sp.symbols("k n", integer=True, positive=True)
    return str(sp.factor(sp.summation(k**3, (k, 1, n))))


def numeric_sum(args):
    n = sp.symbols("n")
    return str(sp.Sum(1 / n**3, (n, 1, sp.oo)).evalf(25)), str(sp.Sum(1 / n**2, (n, 1, sp.oo)).doit())
