import functools


def times(n):
    def decorate(f):
        @functools.wraps(f)
        def call(*args, **kwargs):
            return [f(*args, **kwargs) for _ in range(n)]

        call.count = n
        return call

    return decorate


def register(cls, names=[]):
    names.append(cls.__name__)
    cls.names = names
    return cls


@register
@functools.total_ordering
class Grade:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@times(2)
@times(n=1)
def hello(name):
    """Say it."""
    return "hello " + name


@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def run(kwargs):
    return [hello("x"), hello.count, hello.__name__, hello.__doc__, Grade(2) >= Grade(1), Grade.names, fib(80)]


# abuse: STO-G102
import functools
from fractions import Fraction


def run(kwargs):
    functools.total_ordering(Fraction)
    return "REACHED"
