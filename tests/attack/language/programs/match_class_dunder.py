# expect: refused STO-G011
# level: pure
def run(kwargs):
    match run:
        case object(__globals__=g):
            return "ESCAPED" if g else ""
