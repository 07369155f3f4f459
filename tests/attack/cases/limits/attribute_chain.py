# /// stoilo-case
# idea = "chains that nest"
# stopped_by = "gate"
# goal = "inside"
# expand = { chain = [".real", 400] }
# ///
def run(kwargs):
    x = 1
    return "REACHED" if x@chain@ == 1 else ""
