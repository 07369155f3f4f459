# expect: refused STO-G104
# level: pure
def run(kwargs):
    return "ESCAPED" if type(int)("X", (), {"__reduce__": 1}) else ""
