# /// stoilo-case
# idea = "private attribute of a library object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import random


class A:
    def read(self):
        return self._randbelow


def run(kwargs):
    return "REACHED" if A.read(random.Random(1)) else ""
