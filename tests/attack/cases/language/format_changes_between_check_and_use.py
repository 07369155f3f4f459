# /// stoilo-case
# idea = "format with own objects"
# stopped_by = "language"
# goal = "inside"
# ///
class Shifty(str):
    calls = 0

    def __str__(self):
        return "{0.__globals__}"

    def __iter__(self):
        Shifty.calls += 1
        return iter("safe" if Shifty.calls == 1 else "{0.__globals__}")


def run(kwargs):
    text = str.format(Shifty("{0.__globals__}"), run)
    return "REACHED" if "__builtins__" in text else ""
