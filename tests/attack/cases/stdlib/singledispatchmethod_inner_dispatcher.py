# /// stoilo-case
# idea = "annotations evaluated by libraries"
# stopped_by = "language"
# ///
import functools
from typing import NamedTuple

from contextlib import suppress

TEXTS = []


def run(kwargs):
    mark = kwargs["mark"]
    hidden = NamedTuple("Hidden", [("x", f"open({mark!r}, 'w').close()")])
    method = functools.singledispatchmethod(lambda self, value: value)
    method.dispatcher.register(hidden(1))
    return ""
