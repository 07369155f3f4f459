# expect: refused STO-G101
# level: pure
import random


class R(random.Random):
    def leak(self):
        return self._randbelow


def run(kwargs):
    return "ESCAPED" if R(1).leak() else ""
