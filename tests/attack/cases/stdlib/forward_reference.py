# /// stoilo-case
# idea = "annotations evaluated"
# stopped_by = "language"
# code = "STO-G101"
# ///
from typing import TypeVar


def run(kwargs):
    bound = f"open({kwargs['canary']!r}).read"
    kind = TypeVar("T", bound=bound)
    reference = getattr(kind, "__bo" + "und__")
    return reference._evaluate({}, {}, recursive_guard=frozenset())()
