# expect: refused STO-G103
# level: pure
class S(str):
    pass


def run(kwargs):
    return "ESCAPED" if S("{0.__globals__}").format(run) else ""
