# expect: refused STO-G010
# level: pure
def run(kwargs):
    global _stoilo_write
    return "ESCAPED"
