# expect: refused STO-G105
# level: pure
import dataclasses


def run(kwargs):
    kind = type(dataclasses.field())

    class F(kind):
        pass

    return "ESCAPED"
