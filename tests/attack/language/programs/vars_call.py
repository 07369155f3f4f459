# expect: refused STO-G020
# level: pure
def run(kwargs):
    return "ESCAPED" if vars(run) is not None else ""
