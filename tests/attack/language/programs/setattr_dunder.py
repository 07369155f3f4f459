# expect: refused STO-G102
# level: pure
class A:
    pass


def run(kwargs):
    setattr(A, "__reduce__", lambda self: (print, ("x",)))
    return "ESCAPED"
