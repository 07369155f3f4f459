# expect: refused STO-G011
# level: pure
def run(kwargs):
    match "{0.__globals__}":
        case str(format=f):
            return "ESCAPED" if f(run) else ""
