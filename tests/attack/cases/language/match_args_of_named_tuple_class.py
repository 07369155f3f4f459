# /// stoilo-case
# idea = "match args and virtual instances"
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# ///
from abc import ABC
from typing import NamedTuple


class Fields(NamedTuple):
    format: str


class HasFormat(Fields, ABC):
    pass


def run(kwargs):
    HasFormat.register(str)
    match "{0.__globals__}":
        case HasFormat(walk):
            return "REACHED" if "__builtins__" in walk(run) else ""
