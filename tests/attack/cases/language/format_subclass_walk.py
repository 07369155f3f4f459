# /// stoilo-case
# idea = "format attribute walk"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
class S(str):
    pass


def run(kwargs):
    text = S("{0.__globals__}").format(run)
    return "REACHED" if "__builtins__" in text else ""
