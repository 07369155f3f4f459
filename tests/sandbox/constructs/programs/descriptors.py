class Whole:
    def __init__(self, low):
        self.low = low

    def __set_name__(self, owner, name):
        self.name = name
        self.owner = owner.__name__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return instance.__dict__.get(self.name, self.low)

    def __set__(self, instance, value):
        if value < self.low:
            raise ValueError(f"{self.owner}.{self.name} < {self.low}")
        instance.__dict__[self.name] = value

    def __delete__(self, instance):
        del instance.__dict__[self.name]


class Once:
    def __init__(self, make):
        self.make = make

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner):
        value = instance.__dict__[self.name] = self.make(instance)
        return value


class Loud(property):
    def __get__(self, instance, owner=None):
        return [super().__get__(instance, owner)]


class Box:
    width = Whole(1)
    height = Whole(2)

    @Once
    def area(self):
        return self.width * self.height

    @Loud
    def loud(self):
        return "!"


def run(kwargs):
    box = Box()
    box.width = 4
    found = [box.width, box.height, box.area, vars(box), Box.width.name, Box.height.low, box.loud]
    del box.width
    try:
        box.height = 0
    except ValueError as error:
        found.append(str(error))
    return [*found, box.width]


# abuse: STO-G101
from functools import cached_property


class Own:
    pass


def run(kwargs):
    made = cached_property(lambda self: "REACHED")
    made.__set_name__(Own, "__array_interface__")
    own = Own()
    made.__get__(own, Own)
    return own.__dict__["__array_interface__"]
