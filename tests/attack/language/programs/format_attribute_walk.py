# expect: refused STO-G103
# level: pure
def run(kwargs):
    return "ESCAPED" if "{0.__globals__}".format(run) else ""
