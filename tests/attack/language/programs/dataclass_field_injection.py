# expect: refused STO-G102
# level: pure
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
    return "ESCAPED"
