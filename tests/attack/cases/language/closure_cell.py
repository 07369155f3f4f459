# /// stoilo-case
# idea = "function internals"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
from contextlib import contextmanager


@contextmanager
def manager():
    yield


def run(kwargs):
    return "REACHED" if manager.__closure__[0].cell_contents else ""
