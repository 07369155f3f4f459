# /// stoilo-case
# idea = "generator frames"
# stopped_by = "gate"
# code = "STO-G101"
# ///
def run(kwargs):
    def inner():
        yield 1

    def middle():
        yield from inner()

    outer = middle()
    next(outer)
    names = outer.gi_yieldfrom.gi_frame.f_builtins
    return names["open"](kwargs["canary"]).read()
