# expect: refused STO-G015
# level: pure
class M(type):
    pass


class A(**{"metaclass": M}):
    pass


def run(kwargs):
    return "ESCAPED"
