import abc
from abc import ABC, ABCMeta, abstractmethod


class Shape(ABC):
    @abstractmethod
    def area(self):
        """Say how large it is."""


class Square(Shape):
    def __init__(self, a):
        self.a = a

    def area(self):
        return self.a**2


class Named(metaclass=ABCMeta):
    @property
    @abc.abstractmethod
    def name(self):
        """Say what it is called."""


class Dot(Named, metaclass=abc.ABCMeta):
    name = "dot"


Named.register(Square)


def run(kwargs):
    kinds = [isinstance(Named, ABCMeta), isinstance(Square(1), Named), Dot().name]
    try:
        Named()
    except TypeError as error:
        kinds.append(str(error))
    try:
        Shape()
    except TypeError as error:
        return [Square(3).area(), isinstance(Square(1), Shape), "abstract" in str(error), kinds]


# abuse: STO-G105
ABCMeta = lambda name, bases, names: "REACHED"


class Made(metaclass=ABCMeta):
    pass


def run(kwargs):
    return Made
