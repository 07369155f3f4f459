# /// stoilo-case
# idea = "polynomials and fitting"
# level = "numeric"
# ///
import numpy as np
from numpy.polynomial import Chebyshev, Legendre, Polynomial
from numpy.polynomial import chebyshev as C, legendre as L, hermite_e, polynomial as P


def gauss_legendre(f, a, b, n=12):
    x, w = np.polynomial.legendre.leggauss(n)
    return (b - a) / 2 * (w @ f((b - a) / 2 * x + (a + b) / 2))


def run(kwargs):
    x = np.linspace(-1, 1, 40)
    y = 1 / (1 + 25 * x**2)
    cheb = Chebyshev.interpolate(lambda t: 1 / (1 + 25 * t**2), 30)
    p = Polynomial.fit(x, y, 10)
    leg = Legendre.fit(x, y, 8)
    coef, cov = np.polyfit(x, 2 * x**2 - x + np.random.default_rng(0).normal(0, 0.01, x.size), 2, cov=True)
    roots = np.sort(Polynomial.fromroots([1, 2, 3]).roots())
    old = np.poly1d([1, -3, 2])
    print(old)
    print(Polynomial([1, 2, 3]))
    nodes, weights = hermite_e.hermegauss(5)
    quotient, remainder = divmod(Polynomial([2, 3, 4, 1]), Polynomial([1, 1]))
    return {
        "cheb": float(abs(cheb(x) - y).max()),
        "deg": p.degree(),
        "conv": p.convert().coef,
        "leg": leg(0.5),
        "deriv": p.deriv(2)(0.0),
        "integ": np.diff(p.integ()([-1, 1])),
        "coef": coef,
        "cov": cov,
        "roots": roots,
        "old": [old(3), old.r, (old * old).c, old.deriv().coeffs, old.order],
        "gauss": gauss_legendre(np.exp, 0, 1) - (np.e - 1),
        "moments": [(weights * nodes**k).sum() for k in range(5)],
        "clenshaw": C.chebval(0.3, [1, 2, 3]),
        "vander": P.polyvander(np.array([1.0, 2.0]), 3),
        "two": P.polyval2d(1.0, 2.0, np.arange(4.0).reshape(2, 2)),
        "div": [quotient.coef, remainder.coef],
        "der": L.legder([1, 2, 3]),
        "roots2": P.polyroots([6, -5, 1]),
        "domain": p.domain,
        "linspace": cheb.linspace(3)[0],
    }
