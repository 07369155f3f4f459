from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import ClassVar


@dataclass(order=True, frozen=True)
class Point:
    x: float
    y: float = 0.0
    tags: list = field(default_factory=list, compare=False)
    count: ClassVar[int] = 3


@dataclass
class Line(object):
    a: Point
    b: Point
    _length: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self):
        self._length = abs(self.a.x - self.b.x)


def run(kwargs):
    line = Line(Point(1.0), replace(Point(0.0), x=4.0))
    try:
        line.a.x = 3
    except AttributeError as error:
        frozen = type(error).__name__
    names = [one.name for one in fields(line)]
    return [repr(line), asdict(line), astuple(line.a), Point(1) < Point(2), hash(Point(1, 2)) == hash(Point(1, 2)), line._length, names, frozen]


# abuse: STO-G102
import dataclasses


@dataclasses.dataclass
class Point:
    x: int = 0


def run(kwargs):
    field = dataclasses.fields(Point)[0]
    field.name = "chosen"
    return "REACHED" if dataclasses.fields(Point)[0].name == "chosen" else "no"
