"""Classes whose hooks, descriptors and dictionaries have to travel."""

import abc
import io
import json

import numpy as np


class Shape(metaclass=abc.ABCMeta):
    known = []

    def __init_subclass__(cls, sides=0, **options):
        super().__init_subclass__(**options)
        cls.sides = sides

    @abc.abstractmethod
    def area(self):
        """How large it is."""


class Square(Shape, sides=4):
    def __init__(self, **values):
        self.__dict__.update(values)

    def area(self):
        return self.a**2


class Whole:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__[self.name]

    def __set__(self, instance, value):
        instance.__dict__[self.name] = int(value)


class Counted:
    n = Whole()

    def __init__(self, n):
        self.n = n


class Proxy:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class Loud:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, f"{value}!")


HELD = Proxy([3, 1, 2])


def uses_shapes(kwargs):
    square = Square(a=kwargs["a"])
    return [square.area(), Square.sides, json.dumps(vars(square))]


def uses_descriptor(kwargs):
    counted = Counted(kwargs["n"])
    return [counted.n, Counted.n.name, vars(counted)]


def uses_proxy(kwargs):
    return [HELD.count(1), HELD.index(2), kwargs["proxy"].pop(), hasattr(HELD, "none")]


def uses_setter(kwargs):
    loud = Loud()
    loud.word = kwargs["word"]
    return vars(loud)


def uses_groups(kwargs):
    found = []
    try:
        raise ExceptionGroup("all", [ValueError(kwargs["n"]), TypeError("x")])
    except* ValueError as group:
        found.append(group.exceptions[0].args[0])
    except* TypeError:
        found.append("type")
    return found


def uses_files(kwargs):
    file = io.BytesIO()
    np.savez(file, kwargs["a"], b=2 * kwargs["a"])
    file.seek(0)
    with np.load(file) as arrays:
        return [arrays["arr_0"], arrays["b"]]


CASES = [
    ("shapes", uses_shapes, {"a": 3}),
    ("descriptor", uses_descriptor, {"n": 2.5}),
    ("setter", uses_setter, {"word": "a"}),
    ("groups", uses_groups, {"n": 4}),
    ("files", uses_files, {"a": np.arange(6.0).reshape(2, 3)}),
]
STATEFUL = [
    ("proxies", uses_proxy, {"proxy": Proxy([1, 2])}),
]
