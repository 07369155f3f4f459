# expect: user_error STO-G200
# level: pure
class Name(str):
    pass


def run(kwargs):
    return "ESCAPED" if getattr(run, Name("__globals__")) else ""
