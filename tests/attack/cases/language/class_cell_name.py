# /// stoilo-case
# idea = "names with a meaning in the transformer"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    def read(self):
        return __class__


def run(kwargs):
    return "REACHED" if A().read() is A else ""
