# expect: refused STO-G011
# level: pure
def run(kwargs):
    g = (x for x in [1])
    return "ESCAPED" if g.gi_frame else ""
