# expect: refused STO-G104
# level: pure
def run(kwargs):
    made = type[int]("X", (object,), {"__getattr__": lambda self, name: name})
    return "ESCAPED" if made().anything else ""
