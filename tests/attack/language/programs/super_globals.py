# expect: refused STO-G011
# level: pure
class A:
    def f(self):
        return super().__init__.__globals__ if False else super().__getattribute__


def run(kwargs):
    return "ESCAPED" if A().f() else ""
