# /// stoilo-case
# idea = "dataclass text"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
from dataclasses import dataclass, fields


@dataclass
class A:
    x: int = 0


def run(kwargs):
    try:
        fields(A)[0].name = "y=1"
    finally:
        pass

    try:

        @dataclass
        class B(A):
            z: int = 0

    except SyntaxError:
        pass
    return "REACHED"
