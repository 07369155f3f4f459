# expect: refused STO-G011
# level: pure
def run(kwargs):
    return "ESCAPED" if run.__globals__ else ""
