"""Numbers, groups, geometry, probability, units."""

import sympy as sp
from sympy import stats
from sympy.combinatorics import Permutation, PermutationGroup
from sympy.combinatorics.named_groups import AlternatingGroup, DihedralGroup
from sympy.ntheory import discrete_log, factorint, n_order, primitive_root
from sympy.ntheory.modular import crt
from sympy.physics import units as u
from sympy.tensor.array import Array, tensorcontraction, tensorproduct


def number_theory(args):
    found = factorint(2**67 - 1), n_order(7, 100), primitive_root(101)
    return str(found), discrete_log(41, 15, 7), [int(one) for one in crt([5, 7, 9], [1, 3, 4])]


def primes(args):
    return list(sp.primerange(100)), sp.prime(500), sp.isprime(2**89 - 1), sp.totient(360) == 96


def group(args):
    g = PermutationGroup(Permutation(0, 1, 2, 3), Permutation(3)(0, 1))
    return int(g.order()), g.is_solvable, [list(one) for one in AlternatingGroup(4).generate()][:5]


def dihedral(args):
    g = DihedralGroup(6)
    return int(g.order()), g.is_abelian, str(g.center()), len(g.conjugacy_classes())


def geometry(args):
    a, b, c = map(sp.Point, [(0, 0), (4, 0), (1, 3)])
    t = sp.Triangle(a, b, c)
    return str(t.area), str(t.circumcircle.equation()), str(t.orthocenter)


def circle_and_line(args):
    return str(sp.Circle((0, 0), 5).intersection(sp.Line((0, 1), (2, 2))))


def probability(args):
    n = stats.Normal("N", 1, 2)
    d = stats.Die("D", 6)
    return str(stats.E(n**2)), str(stats.P(d > 4)), str(stats.variance(d)), str(stats.density(n)(0))


def convert_units(args):
    speed = u.convert_to(90 * u.kilometer / u.hour, [u.meter, u.second])
    return str(speed), str(u.convert_to(u.speed_of_light, [u.kilometer, u.second]))


def tensors(args):
    a = Array([[1, 2], [3, 4]])
    return str(tensorcontraction(tensorproduct(a, a), (1, 2)))


def combinatorics(args):
    return [str(one) for one in (sp.bell(10), sp.catalan(12), sp.binomial(40, 17), sp.partition(60))]


def random_matrix(args):
    return str(sp.randMatrix(3, seed=11)), str(sp.ones(2, 3).row_join(sp.eye(2)))


def recurrence(args):
    n = sp.symbols("n", integer=True)
    y = sp.Function("y")
    return str(sp.rsolve(y(n + 2) - y(n + 1) - y(n), y(n), {y(0): 0, y(1): 1}))


def assumptions(args):
    x = sp.symbols("x")
    return str(sp.ask(sp.Q.positive(x**2 + 1), sp.Q.real(x))), str(sp.refine(sp.sqrt(x**2), sp.Q.positive(x)))


def galois(args):
    x = sp.symbols("x")
    found, solvable = sp.galois_group(x**4 - 2, x)
    return int(found.order()), solvable
