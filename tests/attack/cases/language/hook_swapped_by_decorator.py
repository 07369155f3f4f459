# /// stoilo-case
# idea = "hooks that answer for refused names"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
from functools import partial


class A:
    @lambda method: partial(lambda name: "REACHED")
    def __getattr__(self, name):
        return ""


def run(kwargs):
    return A().anything
