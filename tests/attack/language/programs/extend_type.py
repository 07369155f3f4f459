# expect: refused STO-G105
# level: pure
class M(type):
    pass


def run(kwargs):
    return "ESCAPED"
