# /// stoilo-case
# idea = "reserved module variables"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
class Generator:
    __module__ = "numpy.random"


def run(kwargs):
    return "REACHED" if "numpy.random" in repr(Generator) else ""
