# /// stoilo-case
# idea = "super objects"
# stopped_by = "gate"
# code = "STO-G101"
# ///
class A:
    def f(self):
        return 1


class B(A):
    def read(self, path):
        return super().f.__func__.__builtins__["open"](path).read()


def run(kwargs):
    return B().read(kwargs["canary"])
