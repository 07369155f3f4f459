# expect: refused STO-G012
# level: pure
class A:
    def __reduce__(self):
        return (print, ("x",))


def run(kwargs):
    return "ESCAPED"
