# /// stoilo-case
# idea = "format found otherwise"
# stopped_by = "language"
# goal = "inside"
# ///
class S(str):
    walk = property(lambda self: self.format)


def run(kwargs):
    text = S("{0.__globals__}").walk(run)
    return "REACHED" if "__builtins__" in text else ""
