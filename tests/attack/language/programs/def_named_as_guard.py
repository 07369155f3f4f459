# expect: refused STO-G012
# level: pure
def _stoilo_check_self(value, names):
    pass


def run(kwargs):
    return "ESCAPED"
