# expect: refused STO-G020
# level: pure
def run(kwargs):
    return "ESCAPED" if compile("1", "", "eval") else ""
