# /// stoilo-case
# idea = "annotations evaluated by libraries"
# stopped_by = "language"
# ///
import functools
from typing import NamedTuple


class Visitor:
    @functools.singledispatchmethod
    def visit(self, value):
        return value

    raw = visit


def run(kwargs):
    mark = kwargs["mark"]
    hidden = NamedTuple("Hidden", [("x", f"open({mark!r}, 'w').close()")])
    Visitor().visit.register(hidden(1))
    return ""
