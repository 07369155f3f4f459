"""Expressions as functions of numbers, and functions of a task's own."""

import math

import sympy as sp
from sympy.abc import x, y
from sympy.utilities.lambdify import implemented_function, lambdify


def lambdified(args):
    f = lambdify((x, y), sp.sin(x) ** 2 / (1 + y**3) - sp.sqrt(x) * sp.exp(-y) + x / 3, "math")
    return [f(0.1 * k, 1 + k) for k in range(20)]


def lambdified_mpmath(args):
    f = lambdify(x, sp.besselj(2, x) + sp.Rational(1, 3) * x**-2, "mpmath")
    return [str(f(k + 1)) for k in range(5)]


def lambdified_matrix(args):
    f = lambdify([(x, y)], [x * y, [x - y, x**y]], "math", cse=True)
    return f((3.5, 2.0))


def lambdified_pieces(args):
    f = lambdify(x, sp.Piecewise((x**2, x < 1), (sp.log(x), x < 3), (0, True)), "math")
    return [f(k / 2) for k in range(10)]


def lambdified_own(args):
    f = implemented_function("f", lambda v: v + 1)
    g = lambdify(x, f(x) * 2, [{"sin": math.cos}, "math"])
    return g(3), lambdify(x, sp.sin(x), [{"sin": math.cos}, "math"])(1.0)


def lambdified_sum(args):
    k = sp.symbols("k", integer=True)
    return lambdify(x, sp.Sum(x**k / sp.factorial(k), (k, 0, 8)), "math")(0.7)


def newton(args):
    return str(sp.nsolve(sp.cos(x) - x, x, 1, prec=40))


def system_of_equations(args):
    return str(sp.nsolve([x**2 + y**2 - 4, sp.exp(x) + y - 1], [x, y], [1, -1.7]))


class Plus(sp.Function):
    nargs = 1

    @classmethod
    def eval(cls, value):
        if value.is_Number:
            return value + 1

    def fdiff(self, index=1):
        return sp.Integer(1)

    def _eval_is_real(self):
        return self.args[0].is_real

    def _latex(self, printer):
        return r"P\left(" + printer.doprint(self.args[0]) + r"\right)"


def own_function(args):
    r = sp.Symbol("r", real=True)
    found = Plus(x**2).diff(x), Plus(3), Plus(r).is_real, sp.latex(Plus(x))
    return [str(one) for one in found]


def many_terms(args):
    f = lambdify(x, sum(sp.Rational(1, k) * x**k for k in range(1, 600)), "math")
    return f(0.5)


def lambdified_choices(args):
    f = lambdify((x, y), [sp.Max(x, y, 2), sp.Min(x, 1), sp.Mod(x, 3), sp.sign(y), sp.Abs(x)], "math")
    g = lambdify((x, y), sp.floor(x) + sp.ceiling(y), "math")
    return f(4.5, -1.25), g(2.5, 1.5), lambdify(x, (x > 1) & (x < 3), "math")(2)
