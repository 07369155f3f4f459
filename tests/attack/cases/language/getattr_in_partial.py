# /// stoilo-case
# idea = "getattr with a built name"
# stopped_by = "language"
# code = "STO-G101"
# ///
from functools import partial


def run(kwargs):
    module = partial(getattr, len)("__self__", None)
    return module.open(kwargs["canary"]).read()
