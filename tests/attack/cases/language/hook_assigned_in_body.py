# /// stoilo-case
# idea = "hooks that answer for refused names"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    __getattr__ = lambda self, name: "REACHED"


def run(kwargs):
    return A().anything
