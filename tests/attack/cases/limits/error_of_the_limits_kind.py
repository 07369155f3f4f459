# /// stoilo-case
# idea = "an ending by name"
# level = "pure"
# wider = true
# stopped_by = "language"
# code = "STO-G200"
# goal = "inside"
# control = "none"
# ///
class Out(MemoryError):
    pass


def run(kwargs):
    raise Out("of memory")
