"""`scipy`: one thread, no files, distributions by their names only, no freed memory.

What the library takes as text, as a number of workers or as an option reaches it by many
roads, and all of them end in a few places: those are exchanged in the library itself, in
the zygote, for the task and for scipy's own code alike.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
from scipy import constants, fft, optimize, spatial, stats
from scipy._lib import _ccallback
from scipy._lib._util import MapWrapper
from scipy.cluster import hierarchy
from scipy.fft import _basic_backend, _fftlog_backend, _realtransforms_backend
from scipy.fft._pocketfft import basic, realtransforms
from scipy.integrate import _ode, _odepack, _quadrature
from scipy.optimize import _linprog_highs, _milp, _root_scalar
from scipy.optimize._highspy._highs_wrapper import _highs_wrapper
from scipy.sparse._base import _spbase
from scipy.stats import (
    _distn_infrastructure,
    _fit,
    _hypotests,
    _morestats,
    _mstats_basic,
    _qmc,
    _stats_py,
    _survival,
)

from stoilo.core.levels import Level
from stoilo.sandbox.facades.array_memory import call_exporting
from stoilo.sandbox.language.hardening import bind_receivers, exact_text, replace_member
from stoilo.sandbox.language.rules import Closed, GuardError
from stoilo.sandbox.language.substitutes import by_name, stand_for
from stoilo.sandbox.libraries.scipy_lists import exchange_lists

# One thread, whatever number of workers a task asks for: answers are the same ----------


def _one_worker(*_workers: object) -> int:
    return 1


def _map_here(self: Any, pool: Any = 1) -> None:
    # MapWrapper's: opens no pool of processes; a task's own ``map`` is called
    self.pool = pool if callable(pool) else None
    self._mapfunc = self.pool or map
    self._own_pool = False


def _build_fft(level: Level) -> dict[str, object]:
    for part in (basic, realtransforms):
        part._workers = _one_worker  # noqa: SLF001 - exchanged in the library
    # What they are without backends: an object that dispatches shows numpy's raw classes
    backends = (_fftlog_backend, _realtransforms_backend, _basic_backend)
    found = {name: value for part in backends for name, value in vars(part).items()}
    names = level.modules["scipy.fft"].names
    dispatched = (
        name for name in names if type(getattr(fft, name)) is not FunctionType
    )
    return {name: found[name] for name in dispatched if name in found}


def _build_qmc(_level: Level) -> dict[str, object]:
    _qmc._validate_workers = _one_worker  # noqa: SLF001 - exchanged in the library
    _qmc.Sobol(1, scramble=False)  # reads its table of numbers, a file
    return {}


# `scipy.optimize`: HiGHS reads neither files nor the clock ------------------------------

_HIGHS_OPTIONS = frozenset(
    {"dual_feasibility_tolerance", "highs_debug_level", "ipm_iteration_limit"}
    | {"ipm_optimality_tolerance", "log_to_console", "mip_max_nodes", "mip_rel_gap"}
    | {"output_flag", "presolve", "primal_feasibility_tolerance", "sense", "solver"}
    | {"simplex_crash_strategy", "simplex_dual_edge_weight_strategy"}
    | {"simplex_iteration_limit", "simplex_strategy"}
)
_HIGHS_FIXED = {"log_to_console": False, "output_flag": False, "threads": 1}


def _checked_solver(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Return HiGHS in one thread, without the options that name files or ask the clock."""

    @functools.wraps(solve)
    def solve_alone(*problem: Any) -> Any:
        *given, options = problem
        wanted = {name: value for name, value in options.items() if value is not None}
        for name in wanted:
            if type(name) is not str or name not in _HIGHS_OPTIONS:
                raise GuardError(
                    "STO-G101", f"HiGHS takes no option {str(name)[:64]!r} in a task"
                )
        return solve(*given, wanted | _HIGHS_FIXED)

    return solve_alone


_ROOTS = ("bisect", "brenth", "brentq", "newton", "ridder", "toms748")


def _build_optimize(_level: Level) -> dict[str, object]:
    found = {name: getattr(optimize, name) for name in _ROOTS}
    _root_scalar.optzeros = SimpleNamespace(**found)  # read by a text that may lie
    wrapper: Any = MapWrapper
    wrapper.__init__ = _map_here
    for part in (_linprog_highs, _milp):
        part._highs_wrapper = _checked_solver(_highs_wrapper)  # noqa: SLF001 - exchanged in the library
    return {}


# `scipy.integrate`: callbacks own what they are given -----------------------------------
#
# The older solvers show a callback their own work memory as an array, and free it when they
# are done; whoever keeps that array reads and writes what lies there later.


def _owning(callback: Any) -> Any:
    # Called with time and state, or state and time, and more; spelled out, as it is called
    # hundreds of thousands of times
    array = np.ndarray

    def call(first: Any, second: Any, *more: Any) -> Any:
        if type(first) is array:
            first = first.copy()
        if type(second) is array:
            second = second.copy()
        return callback(first, second, *more) if more else callback(first, second)

    return call


def _copying(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled solver whose callbacks get copies of its memory."""

    def run(*values: Any, **options: Any) -> Any:
        owning = [_owning(value) if callable(value) else value for value in values]
        return solve(*owning, **options)

    return run


def qmc_quad(*values: Any, **options: Any) -> Any:
    # The library's own keeps a module as its attribute
    return _quadrature.qmc_quad(*values, **options)


def _build_integrate(_level: Level) -> dict[str, object]:
    solvers: list[Any] = [_ode.vode, _ode.zvode, _ode.dopri5, _ode.dop853, _ode.lsoda]
    for solver in solvers:
        solver.runner = staticmethod(_copying(solver.runner))
    _odepack.odeint = _copying(_odepack.odeint)
    return by_name(qmc_quad)


# `scipy.sparse`: a format is exact text, lists need no addresses -------------------------


def _build_sparse(_level: Level) -> dict[str, object]:
    exchange_lists()
    kind: Any = _spbase
    convert = kind.asformat

    def asformat(self: Any, format: Any, copy: Any = False) -> Any:  # noqa: A002 - the library's
        # A text of the task's own answers ``"to" + format`` with any name
        return convert(self, exact_text(format), copy)

    kind.asformat = asformat
    return {}


# `scipy.spatial`: trees in one thread, hulls without Qhull's own files ------------------
#
# Their methods are compiled and take any object for ``self``: stand-ins hand out none.

_QHULL_OPTION = re.compile(r"Q(?:bb|bB|[citvwxzsmuJ])|QJ\d[-.e\d]*|Q1?\d|Pp")


def _hull(real: Any) -> Any:
    """Return a stand-in for one of Qhull's classes; its options name no file or seed."""

    def make(*values: Any, **options: Any) -> Any:
        text = options.get("qhull_options") or ""
        words = text.split() if type(text) is str else [""]
        if len(values) > _POSITIONAL[real] or not all(
            map(_QHULL_OPTION.fullmatch, words)
        ):
            raise GuardError(
                "STO-G101", f"Qhull takes no option {text!r:.64} in a task"
            )
        return real(*values, **options)

    return stand_for(real, make, module="scipy.spatial")


_POSITIONAL: dict[Any, int] = {
    spatial.ConvexHull: 2,
    spatial.Delaunay: 3,
    spatial.HalfspaceIntersection: 3,
    spatial.Voronoi: 3,
}
"""Before the options."""


def _build_spatial(_level: Level) -> dict[str, object]:
    trees: list[Any] = [spatial.cKDTree, spatial.KDTree]
    _limit_threads(spatial.cKDTree)
    bind_receivers(
        (spatial.KDTree.node, spatial.KDTree.innernode, spatial.KDTree.leafnode)
    )
    stand_ins = [stand_for(tree, tree, module="scipy.spatial") for tree in trees]
    return by_name(*stand_ins, *map(_hull, _POSITIONAL))


def _limit_threads(tree: Any) -> None:
    nearest, near = tree.query, tree.query_ball_point

    def query(
        self: Any,
        x: Any,
        k: Any = 1,
        eps: Any = 0.0,
        p: Any = 2.0,
        distance_upper_bound: Any = np.inf,
        workers: Any = 1,
    ) -> Any:
        del workers
        return nearest(self, x, k, eps, p, distance_upper_bound, 1)

    def query_ball_point(
        self: Any,
        x: Any,
        r: Any,
        p: Any = 2.0,
        eps: Any = 0.0,
        workers: Any = 1,
        return_sorted: Any = None,
        return_length: Any = False,
    ) -> Any:
        del workers
        points, radii = np.array(x, np.float64), np.array(r, np.float64)
        in_order = None if return_sorted is None else bool(return_sorted)
        more = (float(p), float(eps), 1, in_order, bool(return_length))
        return call_exporting(near, self, points, radii, *more)

    for method in (query, query_ball_point):
        replace_member(tree, method.__name__, method)


# Nothing draws: matplotlib would be looked for when a task first plots ------------------


def dendrogram(z: Any, *values: Any, **options: Any) -> dict[str, Any]:
    drawn = {**options, "no_plot": True}
    found: dict[str, Any] = hierarchy.dendrogram(z, *values, **drawn)
    return found


# `scipy.stats`: a text names a distribution and nothing else ---------------------------


def _distributions() -> SimpleNamespace:
    kind = stats.norm.__class__.__mro__[-2]  # rv_generic
    found = vars(stats.distributions).items()
    return SimpleNamespace(
        **{name: value for name, value in found if isinstance(value, kind)}
    )


def _from_values(*, values: Any, name: Any = None, seed: Any = None) -> Any:
    # No shapes: those are text that the library compiles
    return stats.rv_discrete(values=values, name=name and str(name), seed=seed)


def _from_histogram(histogram: Any, *, density: Any = None) -> Any:
    return stats.rv_histogram(histogram, density=density)


def _check_urn(generator: Any) -> None:
    # Its methods are compiled and believe any ``self``: the class is never shown
    real, holds = generator.dist, generator._argcheck  # noqa: SLF001 - as the library asks

    def urn(
        drawn: Any, first: Any, total: Any, odds: Any, _accuracy: Any = None
    ) -> Any:
        if not np.all(holds(total, first, drawn, odds)):
            raise ValueError("an urn has no such contents")
        made = real(drawn, first, total, odds, 1e-12)
        return SimpleNamespace(probability=made.probability, moments=made.moments)

    type(generator).dist = staticmethod(urn)


def _build_stats(_level: Level) -> dict[str, object]:
    for generator in (stats.nchypergeom_fisher, stats.nchypergeom_wallenius):
        _check_urn(generator)
    choose = _distn_infrastructure._fit_determine_optimizer  # noqa: SLF001 - exchanged in the library
    _distn_infrastructure._fit_determine_optimizer = lambda given: choose(  # noqa: SLF001 - likewise
        exact_text(given)
    )
    drawing: list[Any] = [_fit.FitResult, _survival.EmpiricalDistributionFunction]
    for kind in drawing:
        kind.plot = Closed(kind.__name__, "plot")
    _ccallback.ffi = False  # else cffi is looked for at first use
    only = _distributions()
    simulate = _morestats._anderson_simulate_pvalue  # noqa: SLF001 - exchanged in the library

    def simulate_known(x: Any, dist: Any, method: Any) -> Any:
        if exact_text(dist) not in vars(only):
            raise ValueError("anderson() needs the name of a distribution")
        return simulate(x, exact_text(dist), method)

    _morestats._anderson_simulate_pvalue = simulate_known  # noqa: SLF001 - likewise
    for part in (_hypotests, _morestats, _mstats_basic, _stats_py):
        part.distributions = only
    return by_name(
        stand_for(stats.rv_discrete, _from_values, module="scipy.stats"),
        stand_for(stats.rv_histogram, _from_histogram, module="scipy.stats"),
    )


FACADES: dict[str, object] = {
    "scipy.cluster.hierarchy": by_name(dendrogram),
    "scipy.constants": {"physical_constants": dict(constants.physical_constants)},
    "scipy.fft": _build_fft,
    "scipy.integrate": _build_integrate,
    "scipy.optimize": _build_optimize,
    "scipy.sparse": _build_sparse,
    "scipy.spatial": _build_spatial,
    "scipy.stats": _build_stats,
    "scipy.stats.qmc": _build_qmc,
}
