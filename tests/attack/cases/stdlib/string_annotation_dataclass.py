# /// stoilo-case
# idea = "annotations evaluated"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
from dataclasses import dataclass

ran = []


@dataclass
class A:
    x: "ran.append(1)" = 0


def run(kwargs):
    return "REACHED" if A.__dataclass_fields__["x"].type == "ran.append(1)" else ""
