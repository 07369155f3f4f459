# /// stoilo-case
# idea = "match args and virtual instances"
# stopped_by = "language"
# code = "STO-G200"
# ///
from abc import ABC
from collections import namedtuple


class HasFrame(namedtuple("HasFrame", "gi_frame"), ABC):
    pass


class Frame(namedtuple("Frame", "f_back f_builtins"), ABC):
    pass


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
