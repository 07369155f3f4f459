# /// stoilo-case
# idea = "names with a meaning in the transformer"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    def read(self):
        nonlocal __class__
        __class__ = str
        return super


def run(kwargs):
    A().read()
    return "REACHED"
