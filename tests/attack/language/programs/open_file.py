# expect: refused STO-G020
# level: pure
def run(kwargs):
    with open("/dev/null") as file:
        return "ESCAPED" if not file.read() else ""
