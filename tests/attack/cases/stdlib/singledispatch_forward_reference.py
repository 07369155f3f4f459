# /// stoilo-case
# idea = "annotations evaluated by libraries"
# stopped_by = "language"
# code = "STO-G200"
# ///
import functools
from typing import NamedTuple


@functools.singledispatch
def handle(value):
    return value


def run(kwargs):
    mark = kwargs["mark"]
    hidden = NamedTuple("Hidden", [("x", f"open({mark!r}, 'w').close()")])
    handle.register(hidden(1))
    return ""
