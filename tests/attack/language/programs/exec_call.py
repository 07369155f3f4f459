# expect: refused STO-G020
# level: pure
def run(kwargs):
    space = {}
    exec("x = 1", space)
    return "ESCAPED" if space["x"] else ""
