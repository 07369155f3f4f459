# /// stoilo-case
# idea = "metaclasses"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
def run(kwargs):
    made = type(int)("X", (), {"__getattr__": lambda self, name: "REACHED"})
    return made().anything
