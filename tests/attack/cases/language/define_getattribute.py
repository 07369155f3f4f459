# /// stoilo-case
# idea = "special methods that the language relies on"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class A:
    def __getattribute__(self, name):
        return "REACHED"


def run(kwargs):
    return A().x
