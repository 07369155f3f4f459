# expect: refused STO-G010
# level: pure
def run(kwargs):
    match [1, 2]:
        case [*_stoilo_write]:
            pass
    return "ESCAPED"
