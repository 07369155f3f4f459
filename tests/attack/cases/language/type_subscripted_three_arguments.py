# /// stoilo-case
# idea = "type with three arguments"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# ///
def run(kwargs):
    made = type[int]("X", (object,), {"__getattr__": lambda self, name: "REACHED"})
    return made().anything
