# /// stoilo-case
# idea = "library context managers"
# stopped_by = "language"
# code = "STO-G101"
# ///
from contextlib import contextmanager


@contextmanager
def held():
    yield 1


def run(kwargs):
    frame = getattr(getattr(held(), "gen"), "gi_" + "frame")
    builtins = getattr(frame, "f_" + "builtins")
    return builtins["open"](kwargs["canary"]).read()
