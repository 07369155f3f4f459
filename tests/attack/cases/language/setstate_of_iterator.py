# /// stoilo-case
# idea = "reduce protocol"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    items = iter(["", "REACHED"])
    items.__setstate__(1)
    return next(items)
