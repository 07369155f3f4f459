# expect: refused STO-G010
# level: pure
def run(kwargs):
    try:
        raise ValueError
    except ValueError as _stoilo_type:
        return "ESCAPED"
