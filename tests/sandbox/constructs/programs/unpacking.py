def run(kwargs):
    (a, b), *c, d = [(1, 2), 3, 4, 5]
    e, f = f, e = 1, 2
    x = y = [0]
    first, *_ = "hello"
    swap = [1, 2]
    swap[0], swap[1] = swap[1], swap[0]
    try:
        p, q = [1, 2, 3]
    except ValueError as error:
        message = str(error)
    return [a, b, c, d, e, f, x is y, first, swap, message]


# abuse: STO-G102
import math


def run(kwargs):
    [math.pi, other] = [3, 4]
    return "REACHED"
