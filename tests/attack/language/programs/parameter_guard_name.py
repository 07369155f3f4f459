# expect: refused STO-G010
# level: pure
def run(kwargs, _stoilo_getattr=None, /):
    return "ESCAPED"
