# /// stoilo-case
# idea = "enums"
# run = "task"
# level = "pure"
# ///
import enum
from enum import Enum, Flag, IntEnum, StrEnum, auto


class Color(Enum):
    RED = auto()
    GREEN = auto()

    @property
    def pretty(self):
        return self.name.title()

    @classmethod
    def first(cls):
        return next(iter(cls))


class Level(IntEnum):
    LOW = 1
    HIGH = 5


class Perm(Flag):
    R = auto()
    W = auto()


class Unit(StrEnum):
    METRE = "m"


@enum.unique
class Planet(Enum):
    EARTH = (5.97e24, 6.37e6)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius

    def gravity(self):
        return 6.67e-11 * self.mass / self.radius**2


Shade = Enum("Shade", "DARK LIGHT")


def run(kwargs):
    return [
        [c.name for c in Color],
        Color["RED"].value,
        Color(2).pretty,
        Color.first().name,
        Level.HIGH > 3,
        sorted([Level.HIGH, Level.LOW])[0].name,
        str(Perm.R | Perm.W),
        Perm.R in (Perm.R | Perm.W),
        f"{Unit.METRE}",
        Planet.EARTH.gravity(),
        repr(Color.RED),
        Shade.LIGHT.value,
        len(Color),
    ]
