# /// stoilo-case
# idea = "large constants"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# code = "STO-P010"
# expand = { digits = ["f", 9000] }
# ///
def run(kwargs):
    return "REACHED" if 0x@digits@ else ""
