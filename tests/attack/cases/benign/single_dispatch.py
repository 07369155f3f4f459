# /// stoilo-case
# idea = "generic functions"
# ///
"""Expression trees with singledispatch: evaluate, differentiate, print."""
from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch, singledispatchmethod
from fractions import Fraction


class Expr:
    def __add__(self, other):
        return Add(self, lift(other))

    def __mul__(self, other):
        return Mul(self, lift(other))

    __radd__ = __add__
    __rmul__ = __mul__


@dataclass(frozen=True)
class Const(Expr):
    value: Fraction


@dataclass(frozen=True)
class Var(Expr):
    name: str


@dataclass(frozen=True)
class Add(Expr):
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Mul(Expr):
    left: Expr
    right: Expr


@singledispatch
def lift(x):
    raise TypeError(f"cannot lift {type(x).__name__}")


@lift.register(Expr)
def _(x):
    return x


@lift.register(int)
@lift.register(Fraction)
def _(x):
    return Const(Fraction(x))


@singledispatch
def diff(e, name):
    raise NotImplementedError


diff.register(Const, lambda e, name: Const(Fraction(0)))
diff.register(Var, lambda e, name: Const(Fraction(int(e.name == name))))


@diff.register(Add)
def _(e, name):
    return diff(e.left, name) + diff(e.right, name)


@diff.register(Mul)
def _(e, name):
    return diff(e.left, name) * e.right + e.left * diff(e.right, name)


class Evaluator:
    def __init__(self, **env):
        self.env = env

    @singledispatchmethod
    def visit(self, e):
        raise TypeError(e)

    @visit.register(Const)
    def _const(self, e):
        return e.value

    @visit.register(Var)
    def _var(self, e):
        return self.env[e.name]

    @visit.register(Add)
    def _add(self, e):
        return self.visit(e.left) + self.visit(e.right)

    @visit.register(Mul)
    def _mul(self, e):
        return self.visit(e.left) * self.visit(e.right)


def run(kwargs):
    x, y = Var("x"), Var("y")
    f = 3 * x * x + x * y + 7
    ev = Evaluator(x=Fraction(1, 2), y=Fraction(3))
    try:
        lift("text")
    except TypeError as error:
        print(error)
    return [str(ev.visit(f)), str(ev.visit(diff(f, "x"))), str(ev.visit(diff(f, "y"))), diff.dispatch(bool).__name__, len(lift.registry)]
