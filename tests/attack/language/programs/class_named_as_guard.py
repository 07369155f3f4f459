# expect: refused STO-G010
# level: pure
class _stoilo_type:
    pass


def run(kwargs):
    return "ESCAPED"
