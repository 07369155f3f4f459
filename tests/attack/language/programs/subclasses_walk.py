# expect: refused STO-G011
# level: pure
def run(kwargs):
    return "ESCAPED" if ().__class__.__base__.__subclasses__() else ""
