# /// stoilo-case
# idea = "enum internals"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
from enum import Enum


class X(Enum):
    pass


def run(kwargs):
    made = X._create_("Z", {"__array_interface__": 1})
    return "REACHED" if hasattr(made, "__array_interface__") else ""
