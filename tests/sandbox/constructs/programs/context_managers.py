from contextlib import ExitStack, contextmanager, nullcontext, suppress


class Timer:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else "out")
        return kind is KeyError


@contextmanager
def tag(log, name):
    log.append(f"<{name}>")
    try:
        yield name.upper()
    finally:
        log.append(f"</{name}>")


def run(kwargs):
    log = []
    with Timer(log) as timer, tag(log, "b") as (b, *rest):
        log.append([timer.log is log, b, rest])
    with Timer(log):
        raise KeyError("swallowed")
    with suppress(ZeroDivisionError), nullcontext(3) as three:
        1 / 0
    with ExitStack() as stack:
        stack.enter_context(tag(log, "s"))
        stack.callback(log.append, "called")
    return [log, three]


# abuse: STO-G101
class Leak:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.frame = getattr(trace, "tb_" + "frame")
        return True


def run(kwargs):
    leak = Leak()
    with leak:
        raise ValueError
    return "REACHED" if leak.frame else "no"
