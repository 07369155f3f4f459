# /// stoilo-case
# idea = "dataclass Field as base"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
import dataclasses


def run(kwargs):
    kind = type(dataclasses.field())[int]

    class F(kind):
        pass

    return "REACHED"
