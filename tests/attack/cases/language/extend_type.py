# /// stoilo-case
# idea = "metaclass"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
class M(type):
    pass


def run(kwargs):
    made = M("Made", (), {"__getattribute__": lambda self, name: "REACHED"})
    return made().anything
