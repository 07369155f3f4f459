# /// stoilo-case
# idea = "change a module"
# stopped_by = "language"
# code = "STO-G102"
# goal = "inside"
# ///
import math


class A:
    def put(self):
        self.pi = "REACHED"


def run(kwargs):
    A.put(math)
    return math.pi
