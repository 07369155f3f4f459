"""Algebra: equations, polynomials, matrices, simplification, text."""

import sympy as sp
from sympy import Matrix, Rational, S, parse_expr, solve, sympify
from sympy.abc import x, y, z


def quadratic(args):
    a, b, c = sp.symbols("a b c")
    return str(solve(a * x**2 + b * x + c, x))


def system(args):
    found = sp.linsolve([x + y + z - 6, 2 * y + 5 * z + 4, 2 * x + 5 * y - z - 27], x, y, z)
    return str(found)


def nonlinear(args):
    return str(sp.nonlinsolve([x**2 + y**2 - 5, x * y - 2], [x, y]))


def factors(args):
    return str(sp.factor(x**6 - y**6)), str(sp.factor_list(x**5 - 1, extension=sp.sqrt(5)))


def groebner(args):
    found = sp.groebner([x**2 + y**2 + z**2 - 4, x * y - 1, z - x], x, y, z, order="lex")
    return [str(one) for one in found.exprs]


def eigenvalues(args):
    m = Matrix([[2, 1, 0], [1, 3, 1], [0, 1, Rational(1, 2)]])
    return str(m.charpoly(x).as_expr()), str(m.inv()), str(m.det())


def jordan(args):
    p, j = Matrix([[5, 4, 2, 1], [0, 1, -1, -1], [-1, -1, 3, 0], [1, 1, -1, 2]]).jordan_form()
    return str(j), str(p)


def simplify(args):
    return str(sp.simplify(sp.sin(x) ** 4 + 2 * sp.sin(x) ** 2 * sp.cos(x) ** 2 + sp.cos(x) ** 4))


def trigonometry(args):
    return str(sp.expand_trig(sp.sin(3 * x + y))), str(sp.trigsimp(sp.cosh(x) ** 2 - sp.sinh(x) ** 2))


def text_as_expression(args):
    return str(sympify("x**2 + sin(y)/3 + 0.25*z - 7!")), str(S("1/3") + S("2**10"))


def solve_text(args):
    return str(solve("x**3 - 6*x**2 + 11*x - 6")), str(sp.expand("(a + b)**3"))


def parse_unevaluated(args):
    return sp.srepr(parse_expr("1 + 2*3", evaluate=False))


def inequality(args):
    return str(sp.solve_univariate_inequality(x**2 - 4 < 0, x, relational=False))


def roots_numeric(args):
    return [str(one.evalf(20)) for one in sp.Poly(x**5 - x + 1, x).all_roots()]


def printed(args):
    e = sp.Integral(sp.sqrt(1 / x) + sp.Symbol("alpha_1"), x)
    return sp.latex(e), sp.pretty(e, use_unicode=True), sp.ccode(x**2 + sp.sin(y)), sp.srepr(e)


def common_subexpressions(args):
    return str(sp.cse([sp.sqrt(x + y) * sp.sin(x + y), (x + y) ** 2]))


def sets(args):
    return str(sp.Union(sp.Interval(0, 3), sp.Interval.open(2, 5)) - sp.FiniteSet(1))


def logic(args):
    a, b, c = sp.symbols("a b c")
    found = sp.to_cnf((a & ~b) | (b >> c))
    return str(found), str(sp.simplify_logic(found)), sp.satisfiable(a & ~a)
