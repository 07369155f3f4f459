# /// stoilo-case
# idea = "large constants"
# code = "STO-P029"
# run = "check"
# stopped_by = "gate"
# goal = "inside"
# ///
def run(kwargs):
    return "REACHED" if b"x" * (300 << 20) else ""
