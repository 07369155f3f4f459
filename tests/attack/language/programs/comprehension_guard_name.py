# expect: refused STO-G010
# level: pure
def run(kwargs):
    return "ESCAPED" if [1 for _stoilo_type in [1]] else ""
