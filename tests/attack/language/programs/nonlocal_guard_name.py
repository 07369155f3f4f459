# expect: refused STO-G010
# level: pure
def run(kwargs):
    _stoilo_type = 1

    def inner():
        nonlocal _stoilo_type
        _stoilo_type = 2

    return "ESCAPED"
