# expect: refused STO-G010
# level: pure
def run(kwargs):
    match 1:
        case _stoilo_getattr:
            pass
    return "ESCAPED"
