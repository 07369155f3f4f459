def ackermann(m, n):
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


def forever(n):
    return forever(n + 1)


def run(kwargs):
    try:
        forever(0)
    except RecursionError as error:
        return [ackermann(2, 3), type(error).__name__]


# abuse: STO-P040
from sys import setprofile


def run(kwargs):
    found = []
    setprofile(lambda frame, *rest: found.append(frame.f_globals))
    len(found)
    setprofile(None)
    return "REACHED" if found else "no"
