# expect: refused STO-G103
# level: pure
def run(kwargs):
    return "ESCAPED" if list(map(str.format, ["{0.__globals__}"], [run])) else ""
