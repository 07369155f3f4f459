def run(kwargs):
    class Box:
        total = 0

    box, d, a = Box(), {"k": [1]}, [1, 2, 3]
    box.total += 4
    box.total **= 2
    d["k"] += [2]
    a[0] <<= 3
    a[1:] *= 2
    x = 7
    x //= 2
    x |= 8
    s = {1, 2}
    s &= {2, 3}
    calls = []

    def index():
        calls.append(1)
        return 0

    a[index()] -= 5
    return [box.total, d, a, x, sorted(s), len(calls)]


# abuse: STO-G102
import math


def run(kwargs):
    math.pi += 1
    return "REACHED"
