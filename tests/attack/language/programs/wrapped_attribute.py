# expect: refused STO-G011
# level: pure
import functools


@functools.lru_cache
def f():
    return 1


def run(kwargs):
    return "ESCAPED" if f.__wrapped__ else ""
