# expect: refused STO-G010
# level: pure
def run(kwargs):
    return "ESCAPED" if __builtins__ else ""
