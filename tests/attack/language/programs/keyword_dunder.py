# expect: refused STO-G010
# level: pure
def f(**names):
    return names


def run(kwargs):
    return "ESCAPED" if f(__class__=1) else ""
