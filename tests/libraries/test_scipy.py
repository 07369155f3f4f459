"""scipy: research programs give plain CPython's very answer, attacks are stopped."""

import pytest
from scipy import sparse

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.types import RunStatus
from tests.support.libraries import (
    assert_stopped,
    check_program,
    programs_of,
    run_jailed,
)


@pytest.mark.parametrize(("path", "name"), programs_of("scipy"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


TWICE = """
def run(args):
    return args["matrix"] + args["matrix"]
"""


def test_a_sparse_array_goes_in_and_comes_out_of_a_jail_that_opens_scipy_alone():
    matrix = sparse.random_array((9, 7), density=0.2, rng=1, format="csr")
    outcome = run_jailed(TWICE, "run", {"matrix": matrix}, ["scipy"])
    found = from_node(skeleton.decode(outcome.value))
    assert abs(found - 2 * matrix).nnz == 0


def _attack(name, head, *body):
    """Return an attack: what it imports, then the lines of its `run`."""
    lines = (f"    {line}" for line in body)
    return pytest.param("\n".join([head, "def run(args):", *lines]), id=name)


FILES = [
    _attack(
        "reads_a_file_with_scipy_io",
        "from scipy.io import FortranFile",
        "return str(FortranFile('/proc/self/status', 'r'))",
    ),
    _attack(
        "writes_a_sparse_matrix_to_a_file",
        "from scipy import sparse",
        "sparse.save_npz('/dev/null', sparse.eye_array(2))",
        "return True",
    ),
    _attack(
        "asks_for_it_by_text",
        "from scipy import sparse",
        "return str(getattr(sparse, 'load_' + 'npz'))",
    ),
    _attack(
        "lets_highs_write_its_solution",
        "from scipy.optimize import linprog",
        "names = {'write_solution_to_file': True, 'solution_file': '/dev/null'}",
        "return linprog([1], bounds=[(0, 1)], options=names).success",
    ),
    _attack(
        "lets_highs_write_under_a_name_that_lies",
        "from scipy.optimize import milp\n"
        "class Name(str):\n"
        "    def __eq__(self, other): return True\n"
        "    def __hash__(self): return hash('presolve')",
        "names = {Name('write_solution_to_file'): True, Name('solution_file'): '/dev/null'}",
        "return milp([1], options=names).success",
    ),
    _attack(
        "lets_qhull_open_a_file",
        "import numpy\nfrom scipy.spatial import Delaunay",
        "points = numpy.array([[0, 0], [0, 1.0], [1, 0], [1, 1.1]])",
        "return Delaunay(points, qhull_options='Qc TI/etc/passwd').simplices.tolist()",
    ),
]

POWERS = [
    _attack(
        "takes_a_native_pointer",
        "from scipy import LowLevelCallable",
        "return str(LowLevelCallable)",
    ),
    _attack(
        "reads_pointers_of_special_functions",
        "from scipy.special import cython_special",
        "return str(cython_special.__pyx_capi__)",
    ),
    _attack(
        "takes_raw_kernels",
        "import numpy\nfrom scipy.linalg import get_blas_funcs",
        "return str(get_blas_funcs('gemm', [numpy.eye(2)]))",
    ),
    _attack(
        "reads_the_globals_of_a_method",
        "from scipy import stats",
        "return list(getattr(stats.norm.pdf, '__globals__'))",
    ),
    _attack(
        "reads_private_state_of_a_distribution",
        "from scipy import stats",
        "return str(getattr(stats.norm(1, 2).dist, '_parse_arg_template'))",
    ),
    _attack(
        "climbs_from_a_frozen_distribution",
        "from scipy import stats",
        "return str(getattr(stats.norm().dist, '__class__').__mro__)",
    ),
    _attack(
        "names_a_module_in_place_of_a_distribution",
        "from scipy import stats",
        "try:",
        "    stats.probplot([1.0, 2.0, 3.0], dist='rv_frozen', sparams=(1,))",
        "except AttributeError as error:",
        "    return 'dist' in str(error)",
        "except ValueError:",
        "    return False",
    ),
    _attack(
        "compiles_text_as_shapes",
        "from scipy import stats",
        "return stats.rv_histogram(([1, 2], [0, 1, 2]), shapes='a, b').numargs",
    ),
    _attack(
        "extends_a_distribution",
        "from scipy import stats\nclass Own(stats.rv_continuous): pass",
        "return Own(shapes='a').numargs",
    ),
    _attack(
        "answers_a_prefix_with_any_name",
        "from scipy import sparse\n"
        "class Name(str):\n"
        "    def __radd__(self, other): return '__reduce_ex__'.replace('_ex', '')",
        "return isinstance(sparse.eye_array(2).asformat(Name('csr')), tuple)",
    ),
    _attack(
        "restores_a_pickled_state",
        "from scipy import stats",
        "frozen = stats.norm()",
        "return len(getattr(frozen.dist, '__reduce_ex__')(2))",
    ),
    _attack(
        "finds_numpy_behind_a_transform",
        "import numpy\nfrom scipy import fft",
        "found = fft.fft.arg_extractor(numpy.ones(2))",
        "return str(found[0].type)",
    ),
    _attack(
        "sets_a_backend",
        "from scipy import fft",
        "return str(fft.set_backend('scipy'))",
    ),
    _attack(
        "starts_threads",
        "from scipy import fft",
        "with fft.set_workers(2):",
        "    return fft.get_workers() > 1",
    ),
    _attack(
        "bounds_the_solver_by_the_clock",
        "from scipy.optimize import milp",
        "return milp([1], options={'time_limit': 5.0}).success",
    ),
    _attack(
        "imports_by_text",
        "from scipy.optimize import show_options",
        "return show_options('minimize', 'bfgs', disp=False)",
    ),
]

LIES = [
    _attack(
        "changes_a_function_for_everybody",
        "from scipy import optimize",
        "optimize.minimize = len",
        "return optimize.minimize is len",
    ),
    _attack(
        "changes_a_class_for_everybody",
        "from scipy import spatial",
        "setattr(spatial.KDTree, 'query', len)",
        "return spatial.KDTree.query is len",
    ),
    _attack(
        "changes_a_distribution_for_everybody",
        "from scipy import stats",
        "stats.norm.pdf = len",
        "return stats.norm.pdf([1, 2]) == 2",
    ),
    _attack(
        "extends_a_matrix_with_lies",
        "from scipy import sparse\n"
        "class Own(sparse.csr_array):\n"
        "    def check_format(self, full_check=True): pass",
        "return Own(([1.0], [7], [0, 1]), shape=(1, 2)).nnz",
    ),
    _attack(
        "overrides_what_an_operator_keeps",
        "import numpy\nfrom scipy.sparse.linalg import LinearOperator\n"
        "class Own(LinearOperator):\n"
        "    def matvec(self, x): return 'lie'\n"
        "    def _matvec(self, x): return x",
        "return Own(numpy.dtype(float), (2, 2)).matvec(numpy.ones(2)) == 'lie'",
    ),
    _attack(
        "calls_a_method_on_something_else",
        "from scipy import stats\nclass Own:\n    def evaluate(self, x): return x",
        "return stats.gaussian_kde.pdf(Own(), 5)",
    ),
    _attack(
        "reads_a_compiled_method_off_its_class",
        "from scipy import spatial",
        "return str(spatial.cKDTree.count_neighbors)",
    ),
    _attack(
        "asks_a_function_for_the_module_that_it_keeps",
        "from scipy import integrate",
        "integrate.qmc_quad(lambda x: 1.0, [0], [1], n_estimates=2, n_points=8)",
        "return str(integrate.qmc_quad.stats)",
    ),
    _attack(
        "reads_a_compiled_method_off_an_urn_s_class",
        "from scipy import stats",
        "return str(stats.nchypergeom_fisher.dist.mean)",
    ),
    _attack(
        "asks_an_urn_for_its_class",
        "from scipy import stats",
        "return str(type(stats.nchypergeom_wallenius.dist(2, 3, 5, 1.5, 1e-9)).mean)",
    ),
    _attack(
        "keeps_the_memory_of_a_solver",
        "import numpy\nfrom scipy.integrate import odeint\nkept = []\n"
        "def slope(y, t):\n    kept.append(y)\n    return -y",
        "odeint(slope, numpy.arange(1.0, 60), [0, 1.0])",
        "before = [seen.tolist() for seen in kept]",
        "junk = [numpy.full(59, 7.0) for _ in range(300)]",
        "return before != [seen.tolist() for seen in kept] and len(junk)",
    ),
    _attack(
        "keeps_the_memory_of_a_stepping_solver",
        "import numpy\nfrom scipy.integrate import ode\nkept = []\n"
        "def slope(t, y):\n    kept.append(y)\n    return -y",
        "first = numpy.arange(1.0, 60)",
        "ode(slope).set_integrator('vode').set_initial_value(first, 0).integrate(1.0)",
        "return any(seen.base is not None for seen in kept)",
    ),
]


@pytest.mark.parametrize("source", [*FILES, *POWERS, *LIES])
def test_attack_is_stopped(source):
    assert_stopped(source, "scipy")


WORKERS = """
import numpy
from scipy import fft, optimize, spatial
def run(args):
    points = numpy.arange(20.0).reshape(10, 2)
    best = optimize.differential_evolution(
        lambda x: float(x @ x), [(-1, 1)] * 2, rng=1, workers=-1, updating="deferred"
    )
    near = spatial.cKDTree(points).query(points, workers=-1)[1].tolist()
    return best.x.tolist(), near, fft.fft(points, workers=4).shape
"""


def test_any_number_of_workers_is_one():
    outcome = run_jailed(WORKERS, "run", {}, ["scipy"])
    assert outcome.status is RunStatus.OK, outcome.error


HOSTILE = """
import numpy
from scipy import interpolate, sparse
def indices(args):
    far = numpy.array([10**9], dtype=numpy.int32)
    one = sparse.csr_array((numpy.ones(1), far, numpy.array([0, 1])), shape=(1, 2))
    return (one @ numpy.ones(2)).tolist()
def indptr(args):
    one = sparse.csr_array((2, 2))
    one.indptr[1:] = 10**9
    return one.toarray().tolist()
def knots(args):
    return interpolate.splev(0.5, (numpy.ones(2), numpy.ones(2), 5)).tolist()
def honest(args):
    return sparse.eye_array(2).nnz
"""


@pytest.mark.parametrize("entry", ["indices", "indptr", "knots"])
def test_a_matrix_that_points_outside_ends_its_own_run_only(entry):
    run_jailed(HOSTILE, entry, {}, ["scipy"])
    outcome = run_jailed(HOSTILE, "honest", {}, ["scipy"])
    assert skeleton.decode(outcome.value) == 2


UNSEEDED = """
import numpy
from scipy import stats
def run(args):
    sobol = stats.qmc.Sobol(2).random(2).tolist()
    again = stats.bootstrap(([1.0, 2, 4],), numpy.mean).bootstrap_distribution
    return stats.norm.rvs(size=3).tolist(), again.tolist(), sobol
"""


def test_honest_copies_draw_the_same_without_a_seed():
    first, second = (run_jailed(UNSEEDED, "run", {}, ["scipy"]) for _ in range(2))
    assert first.status is RunStatus.OK, first.error
    assert first.value == second.value
