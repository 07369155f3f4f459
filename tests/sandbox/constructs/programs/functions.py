def last(n, acc=1):
    """The last def is the entry."""
    return acc if n == 0 else last(n - 1, acc * n)


def apply(f, *values):
    return [f(value) for value in values]


def run(kwargs):
    add = lambda a, b=1: a + b
    last.calls = 3
    return [last(20), apply(add, 1, 2), apply(str.upper, "a"), last.calls, last.__name__, last.__doc__, callable(add)]


# abuse: STO-G101
def run(kwargs):
    return "REACHED" if run.__globals__ else "no"
