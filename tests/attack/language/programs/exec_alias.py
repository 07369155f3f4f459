# expect: refused STO-G020
# level: pure
def run(kwargs):
    e = eval
    return "ESCAPED" if e("1") else ""
