# /// stoilo-case
# idea = "class tricks"
# ///
"""Registries by decorator, class methods as constructors, descriptors by property, mixins."""
from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial, partialmethod, wraps
from io import StringIO
from types import MethodType
from typing import Callable, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


class Registry(Generic[T]):
    def __init__(self) -> None:
        self._items: dict[str, T] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        def decorate(item: T) -> T:
            self._items[name] = item
            return item

        return decorate

    def __getitem__(self, name):
        return self._items[name]

    def __iter__(self):
        return iter(sorted(self._items))

    def __contains__(self, name):
        return name in self._items


kernels: Registry[type] = Registry()


@runtime_checkable
class Evaluates(Protocol):
    def evaluate(self, x: float) -> float: ...


class Kernel(ABC):
    count: ClassVar[int] = 0

    def __init__(self, scale=1.0):
        self.scale = scale
        Kernel.count += 1

    @abstractmethod
    def evaluate(self, x): ...

    @classmethod
    def of(cls, text):
        name, _, scale = text.partition(":")
        return kernels[name](float(scale or 1))

    double = partialmethod(lambda self, k, x: k * self.evaluate(x), 2)

    @property
    def scale(self):
        return self._scale

    @scale.setter
    def scale(self, value):
        if value <= 0:
            raise ValueError("scale must be positive")
        self._scale = value


@kernels("box")
class Box(Kernel):
    def evaluate(self, x):
        return float(abs(x) <= self.scale)


@kernels("triangle")
class Triangle(Kernel):
    def evaluate(self, x):
        return max(0.0, 1 - abs(x) / self.scale)


def traced(log):
    def decorate(f):
        @wraps(f)
        def inner(*args, **kwargs):
            log.append((f.__name__, args, kwargs))
            return f(*args, **kwargs)

        return inner

    return decorate


@contextmanager
def collected():
    out = StringIO()
    with redirect_stdout(out):
        yield out


def _fails(cls):
    try:
        cls()
    except TypeError as error:
        return "abstract" in str(error)


def run(kwargs):
    log = []

    @traced(log)
    def area(k, n=100):
        return sum(k.evaluate(-2 + 4 * i / n) for i in range(n)) * 4 / n

    made = [Kernel.of(t) for t in ("box:0.5", "triangle")]
    with suppress(ValueError):
        made[0].scale = -1
    with collected() as text:
        print("inside", len(made))
    made[0].shout = MethodType(lambda self: f"{type(self).__name__}!", made[0])
    cube = partial(pow, exp=3)
    return {
        "areas": [round(area(k, n=50), 6) for k in made],
        "log": [name for name, *_ in log],
        "names": list(kernels),
        "protocol": isinstance(made[0], Evaluates),
        "double": made[1].double(0.25),
        "count": Kernel.count,
        "text": text.getvalue(),
        "shout": made[0].shout(),
        "cube": cube(2),
        "abstract": _fails(Kernel),
    }
