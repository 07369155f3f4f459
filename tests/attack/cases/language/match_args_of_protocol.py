# /// stoilo-case
# idea = "match args and virtual instances"
# stopped_by = "language"
# goal = "inside"
# ///
from collections import namedtuple
from typing import Protocol, runtime_checkable


@runtime_checkable
class HasFrame(Protocol):
    def send(self, value): ...


class Named(HasFrame, namedtuple("Named", "gi_frame")):
    pass


def run(kwargs):
    generator = (x for x in [1])
    type(generator)
    if not isinstance(generator, HasFrame):
        return ""
    Named.register(type(generator))
    match generator:
        case Named(frame):
            return "REACHED" if frame else ""
