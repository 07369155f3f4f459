from abc import ABC, abstractmethod


class Shape(ABC):
    @abstractmethod
    def area(self):
        """Say how large it is."""


class Square(Shape):
    def __init__(self, a):
        self.a = a

    def area(self):
        return self.a**2


def run(kwargs):
    try:
        Shape()
    except TypeError as error:
        return [Square(3).area(), isinstance(Square(1), Shape), "abstract" in str(error)]


# abuse: STO-G015
import abc


class Made(metaclass=abc.ABCMeta):
    pass


def run(kwargs):
    return "REACHED"
