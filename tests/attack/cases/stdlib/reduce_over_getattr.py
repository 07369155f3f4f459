# /// stoilo-case
# idea = "functions that wrap functions"
# stopped_by = "language"
# code = "STO-G101"
# ///
from functools import reduce
from itertools import accumulate


def run(kwargs):
    found = list(accumulate(["__self__", "open"], getattr, initial=len))
    return reduce(lambda reader, path: reader(path), [kwargs["canary"]], found[-1]).read()
