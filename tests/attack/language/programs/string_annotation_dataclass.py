# expect: value
# level: pure
from dataclasses import dataclass

ran = []


@dataclass
class A:
    x: "ran.append(1)" = 0


def run(kwargs):
    return "ESCAPED" if A.__dataclass_fields__["x"].type == "ran.append(1)" else ""
