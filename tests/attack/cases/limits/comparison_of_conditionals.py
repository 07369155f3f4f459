# /// stoilo-case
# idea = "chains that nest"
# stopped_by = "gate"
# goal = "inside"
# expand = { chain = ["x if x else ", 300] }
# ///
def run(kwargs):
    x = 0
    return "REACHED" if not (@chain@x) else ""
