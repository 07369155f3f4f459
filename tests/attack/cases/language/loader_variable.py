# /// stoilo-case
# idea = "reserved module variables"
# stopped_by = "gate"
# code = "STO-G010"
# goal = "inside"
# ///
def run(kwargs):
    return "REACHED" if __loader__ is None and __spec__ is None else ""
