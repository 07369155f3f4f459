"""Curves and surfaces through points."""

import numpy as np
from scipy import interpolate


def _curve():
    x = np.linspace(0, 10, 15)
    return x, np.sin(x) + 0.1 * x, np.linspace(0, 10, 41)


def curves_through_points(args):
    x, y, fine = _curve()
    kinds = (
        interpolate.CubicSpline(x, y),
        interpolate.PchipInterpolator(x, y),
        interpolate.Akima1DInterpolator(x, y),
        interpolate.BarycentricInterpolator(x[:8], y[:8], rng=1),
        interpolate.make_interp_spline(x, y, k=3),
        interpolate.interp1d(x, y, kind="quadratic"),
    )
    return [kind(fine[:20]).tolist() for kind in kinds]


def splines_are_functions(args):
    x, y, fine = _curve()
    spline = interpolate.CubicSpline(x, y, bc_type="natural")
    return [
        spline.derivative()(fine).tolist(),
        float(spline.integrate(0, 10)),
        spline.roots(extrapolate=False).tolist(),
        spline.c.shape,
    ]


def smoothing(args):
    x = np.linspace(-3, 3, 60)
    y = np.exp(-(x**2)) + np.random.default_rng(4).normal(0, 0.1, x.size)
    older = interpolate.UnivariateSpline(x, y, s=0.6)
    newer = interpolate.make_smoothing_spline(x, y)
    knots = interpolate.splrep(x, y, s=0.6)
    return older(x).tolist(), newer(x).tolist(), interpolate.splev(x, knots).tolist()


def surfaces(args):
    rng = np.random.default_rng(8)
    points = rng.uniform(-1, 1, (60, 2))
    values = np.hypot(*points.T)
    where = rng.uniform(-0.5, 0.5, (10, 2))
    radial = interpolate.RBFInterpolator(points, values)(where)
    ways = [
        interpolate.griddata(points, values, where, method=way).tolist()
        for way in ("nearest", "linear", "cubic")
    ]
    axis = np.linspace(-1, 1, 9)
    table = np.add.outer(axis**2, axis)
    grid = interpolate.RegularGridInterpolator((axis, axis), table)(where)
    patch = interpolate.RectBivariateSpline(axis, axis, table).ev(*where.T)
    return radial.tolist(), ways, grid.tolist(), patch.tolist()
