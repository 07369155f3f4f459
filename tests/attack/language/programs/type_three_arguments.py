# expect: refused STO-G015
# level: pure
def run(kwargs):
    return "ESCAPED" if type("X", (), {"__reduce__": 1}) else ""
