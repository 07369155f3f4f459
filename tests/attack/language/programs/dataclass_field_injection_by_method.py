# expect: refused STO-G102
# level: pure
from dataclasses import dataclass, fields


@dataclass
class A:
    x: int = 0


class Writer:
    def put(self, value):
        self.name = value


def run(kwargs):
    Writer.put(fields(A)[0], "y=1")
    return "ESCAPED"
