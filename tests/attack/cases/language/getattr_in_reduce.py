# /// stoilo-case
# idea = "getattr with a built name"
# stopped_by = "language"
# code = "STO-G101"
# ///
from functools import reduce


def run(kwargs):
    reader = reduce(getattr, ["__self__", "open"], len)
    return reader(kwargs["canary"]).read()
