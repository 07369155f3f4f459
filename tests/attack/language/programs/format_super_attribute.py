# expect: refused STO-G101
# level: pure
class S(str):
    def show(self, value):
        return super().format(value)


def run(kwargs):
    return "ESCAPED" if S("{0.__globals__}").show(run) else ""
