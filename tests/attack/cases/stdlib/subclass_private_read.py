# /// stoilo-case
# idea = "private attribute of a library object"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
import random


class R(random.Random):
    def leak(self):
        return self._randbelow


def run(kwargs):
    return "REACHED" if R(1).leak() else ""
