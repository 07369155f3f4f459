# expect: refused STO-G102
# level: pure
import math


class A:
    def put(self):
        self.pi = 3


def run(kwargs):
    A.put(math)
    return "ESCAPED"
