from enum import Enum, IntEnum, IntFlag, StrEnum, auto, unique


@unique
class Color(Enum):
    RED = 1
    GREEN = auto()

    @property
    def nice(self):
        return self.name.lower()


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(IntFlag):
    READ = auto()
    WRITE = auto()


class Word(StrEnum):
    YES = auto()


Made = Enum("Made", "A B")


def run(kwargs):
    return [
        Color.RED.nice, Color(2).name, Color["RED"] is Color.RED, [c.value for c in Color], Level.HIGH > 1,
        str(Word.YES), (Mode.READ | Mode.WRITE).value, Made.B.value, type(Made.A) is Made, isinstance(Color.RED, Color),
    ]


# abuse: STO-G105
import enum


def run(kwargs):
    kind = enum.Enum("Bad", [("__class_getitem__", 1)])
    return "REACHED" if kind else "no"
