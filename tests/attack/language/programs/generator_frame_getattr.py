# expect: refused STO-G101
# level: pure
def run(kwargs):
    g = (x for x in [1])
    return "ESCAPED" if getattr(g, "gi_frame") else ""
