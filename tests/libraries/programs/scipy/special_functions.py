"""Special functions and physical constants."""

import numpy as np
from scipy import constants, special


def functions(args):
    x = np.linspace(0.1, 5, 9)
    return [
        found.tolist()
        for found in (
            special.gamma(x),
            special.erf(x),
            special.jv(1.5, x),
            special.betainc(2, 3, x / 6),
            special.ellipk(x / 6),
            special.expit(x),
            special.logsumexp(np.outer(x, x), axis=0),
            special.softmax(x),
            special.zeta(x + 1),
            special.lambertw(x).real,
        )
    ]


def polynomials(args):
    nodes, weights = special.roots_legendre(6)
    p = special.legendre(4)
    return [
        *(nodes.tolist(), weights.tolist(), p(0.3), p.coef.tolist()),
        special.eval_hermite(5, np.linspace(-1, 1, 5)).tolist(),
        *(special.comb(10, 3, exact=True), special.factorial(20, exact=True)),
        special.jn_zeros(0, 4).tolist(),
        complex(special.sph_harm_y(2, 1, 0.4, 0.9)),
    ]


def particle_in_a_box(args):
    def energy(n, width):
        return (n * constants.h) ** 2 / (8 * constants.m_e * width**2) / constants.eV

    unit = constants.unit("speed of light in vacuum")
    return [energy(n, constants.nano) for n in range(1, 5)], unit, constants.c
