# expect: refused STO-G012
# level: pure
class A:
    def __getattribute__(self, name):
        return 1


def run(kwargs):
    return "ESCAPED" if A().x else ""
