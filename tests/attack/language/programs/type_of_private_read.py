# expect: refused STO-G101
# level: pure
import random


class A:
    def read(self):
        return self._randbelow


def run(kwargs):
    return "ESCAPED" if A.read(random.Random(1)) else ""
