# /// stoilo-case
# idea = "format through super"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
class S(str):
    pass


def run(kwargs):
    text = S("{0.__globals__}")
    walk = super(S, text).format
    return "REACHED" if "__builtins__" in walk(run) else ""
