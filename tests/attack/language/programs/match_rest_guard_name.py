# expect: refused STO-G010
# level: pure
def run(kwargs):
    match {"a": 1}:
        case {**_stoilo_write}:
            pass
    return "ESCAPED"
