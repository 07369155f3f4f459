# /// stoilo-case
# idea = "format through super"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
class S(str):
    def show(self, value):
        return getattr(super(), "format")(value)


def run(kwargs):
    return "REACHED" if "__builtins__" in S("{0.__globals__}").show(run) else ""
