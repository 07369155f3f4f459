# expect: refused STO-G101
# level: pure
from enum import Enum


class X(Enum):
    pass


def run(kwargs):
    made = X._create_("Z", {"__array_interface__": 1})
    return "ESCAPED" if hasattr(made, "__array_interface__") else ""
