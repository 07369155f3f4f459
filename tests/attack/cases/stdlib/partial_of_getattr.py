# /// stoilo-case
# idea = "functions that wrap functions"
# stopped_by = "language"
# code = "STO-G101"
# ///
from functools import partial


def run(kwargs):
    reader = partial(getattr, len.__call__)("__self__")
    return getattr(reader, "__self__").open(kwargs["canary"]).read()
