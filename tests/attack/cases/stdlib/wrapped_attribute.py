# /// stoilo-case
# idea = "functions that wrap functions"
# stopped_by = "gate"
# code = "STO-G101"
# ///
import functools


@functools.lru_cache
def cached():
    return 1


def run(kwargs):
    return cached.__wrapped__.__builtins__["open"](kwargs["canary"]).read()
