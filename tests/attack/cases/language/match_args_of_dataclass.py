# /// stoilo-case
# idea = "match args and virtual instances"
# stopped_by = "language"
# code = "STO-G105"
# ///
from abc import ABC
from dataclasses import dataclass


@dataclass
class HasFrame(ABC):
    gi_frame: object


@dataclass
class Frame(ABC):
    f_back: object
    f_builtins: object


def look(frame):
    match frame:
        case Frame(back, names):
            return back, names


def run(kwargs):
    def walk():
        match generator:
            case HasFrame(frame):
                Frame.register(type(frame))
                back, names = look(frame)
                while "open" not in names:
                    back, names = look(back)
                yield names["open"](kwargs["canary"]).read()

    generator = walk()
    HasFrame.register(type(generator))
    return next(generator)
