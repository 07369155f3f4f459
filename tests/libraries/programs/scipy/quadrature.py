"""Integrals of functions and of samples; derivatives."""

import numpy as np
from scipy import differentiate, integrate, stats


def integrals_of_functions(args):
    bell = integrate.quad(lambda x, s: np.exp(-(x**2) / s), -np.inf, np.inf, args=(2.0,))
    disc = integrate.dblquad(lambda y, x: x * y, 0, 1, 0, lambda x: np.sqrt(1 - x**2))
    cube = integrate.nquad(lambda x, y, z: x + y * z, [(0, 1), (0, 2), (0, 3)])
    vector = integrate.quad_vec(lambda x: np.array([x, x**2, np.sin(x)]), 0, 2)
    return bell, disc, cube[0], vector[0].tolist()


def integrals_of_samples(args):
    x = np.linspace(0, np.pi, 101)
    y = np.sin(x)
    total = integrate.cumulative_trapezoid(y, x, initial=0)
    return float(integrate.simpson(y, x=x)), float(integrate.trapezoid(y, x)), total.tolist()


def gauss_and_tanh_sinh(args):
    fixed = integrate.fixed_quad(lambda x: x**7, 0, 1, n=5)[0]
    smooth = integrate.tanhsinh(lambda x: np.log(x), 0, 1)
    boxes = integrate.cubature(lambda x: np.prod(np.cos(x), axis=-1), [0, 0], [1, 1])
    return float(fixed), float(smooth.integral), float(boxes.estimate)


def derivatives(args):
    slope = differentiate.derivative(np.exp, np.array([0.0, 1.0]))
    bend = differentiate.jacobian(lambda x: np.stack([x[0] * x[1], x[0] ** 2]), [1.0, 2.0])
    return slope.df.tolist(), bend.df.tolist()


def integrates_over_quasi_random_points(args):
    found = integrate.qmc_quad(
        lambda x: float((x * x).sum()),
        [0.0, 0.0],
        [1.0, 2.0],
        n_points=32,
        qrng=stats.qmc.Halton(2, rng=np.random.default_rng(3)),
    )
    return found.integral, found.standard_error
