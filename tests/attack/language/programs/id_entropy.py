# expect: refused STO-G020
# level: pure
def run(kwargs):
    return "ESCAPED" if id(run) else ""
