# /// stoilo-case
# idea = "entropy"
# stopped_by = "gate"
# code = "STO-G020"
# goal = "inside"
# ///
def run(kwargs):
    return "REACHED" if id(run) else ""
