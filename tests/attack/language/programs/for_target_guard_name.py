# expect: refused STO-G010
# level: pure
def run(kwargs):
    for _stoilo_type in [1]:
        pass
    return "ESCAPED"
