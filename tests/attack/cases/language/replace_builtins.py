# /// stoilo-case
# idea = "reserved module variables"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
__builtins__ = {"len": lambda value: "REACHED"}


def run(kwargs):
    return __builtins__["len"](kwargs)
