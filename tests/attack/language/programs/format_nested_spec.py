# expect: refused STO-G103
# level: pure
def run(kwargs):
    return "ESCAPED" if "{0:{1.__code__.co_argcount}}".format(7, run) else ""
