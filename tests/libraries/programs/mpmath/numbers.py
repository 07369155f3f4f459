"""mpmath by itself: precision, special functions, sums, roots, matrices."""

import mpmath
from mpmath import mp, mpf


def digits_of_pi(args):
    mp.dps = 120
    return str(mp.pi), str(mpmath.exp(1))


def quadrature(args):
    with mpmath.workdps(40):
        return str(mpmath.quad(lambda v: mpmath.exp(-(v**2)), [-mpmath.inf, mpmath.inf]))


def special(args):
    found = [mpmath.zeta(3), mpmath.gamma(mpf(1) / 3), mpmath.hyp2f1(1, 2, 3, 0.5)]
    return [repr(one) for one in [*found, mpmath.besselj(0, 2.5), mpmath.ellipk(0.3)]]


def root(args):
    return str(mpmath.findroot(lambda v: mpmath.cos(v) - v, 1)), str(mpmath.polyroots([1, 0, -2]))


def matrices(args):
    a = mpmath.matrix([[4, 1], [2, 3]])
    return str(mpmath.det(a)), str(a**-1), str(mpmath.lu_solve(a, [1, 2]))


def sums(args):
    found = mpmath.nsum(lambda k: 1 / k**2, [1, mpmath.inf]), mpmath.taylor(mpmath.sin, 0, 5)
    return str(found[0]), [str(one) for one in found[1]]


def relation(args):
    return mpmath.pslq([mpmath.pi, mpmath.acot(5), mpmath.acot(239)], maxcoeff=100)


def identified(args):
    return str(mpmath.identify(mpmath.sqrt(2) + 1)), str(mpmath.findpoly(mpmath.phi, 3))


def differential_equation(args):
    f = mpmath.odefun(lambda x, y: y, 0, 1)
    return str(f(1)), str(mpmath.diff(lambda v: v**3, 2))


def intervals(args):
    return str(mpmath.iv.mpf([1, 2]) + 3), mpmath.fp.sin(1.0)
