# /// stoilo-case
# idea = "type with three arguments"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from typing import Annotated


def run(kwargs):
    build = Annotated[type, "an alias calls its origin"]
    made = build("X", (), {"__getattr__": lambda self, name: "REACHED"})
    return made().anything
