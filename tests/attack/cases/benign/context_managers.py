# /// stoilo-case
# idea = "context managers"
# run = "task"
# level = "pure"
# ///
from contextlib import ExitStack, contextmanager, suppress


class Timer:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else "clean")
        return kind is ZeroDivisionError


@contextmanager
def scaled(values, k):
    values[:] = [v * k for v in values]
    try:
        yield values
    finally:
        values[:] = [v / k for v in values]


def run(kwargs):
    log = []
    with Timer(log) as timer, Timer(log) as (other):
        log.append(timer is other)
    with Timer(log):
        1 / 0
    values = [1.0, 2.0]
    with scaled(values, 3) as inside:
        log.append(list(inside))
    with suppress(KeyError):
        {}["x"]
    with ExitStack() as stack:
        stack.enter_context(Timer(log))
        stack.callback(log.append, "callback")
    return [log, values]
