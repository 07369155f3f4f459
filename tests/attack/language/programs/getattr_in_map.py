# expect: refused STO-G101
# level: pure
def run(kwargs):
    return "ESCAPED" if list(map(getattr, [run], ["__globals__"])) else ""
