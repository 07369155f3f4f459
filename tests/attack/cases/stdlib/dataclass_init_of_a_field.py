# /// stoilo-case
# idea = "methods that dataclasses write"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass, fields


@dataclass
class Named:
    name: str


@dataclass
class Base:
    x: int = 0


def run(kwargs):
    # The library compiles this: a call, and text that it cannot read.
    Named.__init__(fields(Base)[0], "x=print(1), y")
    try:

        @dataclass
        class Derived(Base):
            z: int = 0

    except SyntaxError:
        return "REACHED"
    return ""
