# /// stoilo-case
# idea = "match args and virtual instances"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from dataclasses import dataclass


@dataclass(init=False)
class Text(str):
    """Text."""

    format: object


def run(kwargs):
    match Text("{0.__globals__}"):
        case Text(walk):
            return "REACHED" if "__builtins__" in walk(run) else ""
