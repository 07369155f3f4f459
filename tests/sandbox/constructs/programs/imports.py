import collections.abc
import math as m
from collections import Counter
from collections import deque as queue
from itertools import chain


def run(kwargs):
    import random
    from fractions import Fraction as F

    random.seed(3)
    first = random.random()
    random.seed(3)
    return [
        m.gcd(12, 18), Counter("abca").most_common(1), list(queue([1, 2, 3], maxlen=2)), list(chain("a", "b")),
        isinstance([], collections.abc.Sequence), str(F(3, 6)), random.random() == first,
    ]


# abuse: STO-P040
import os


def run(kwargs):
    return "REACHED" if os.getcwd() else "no"
