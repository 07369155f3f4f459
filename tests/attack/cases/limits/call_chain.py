# /// stoilo-case
# idea = "chains that nest"
# stopped_by = "gate"
# goal = "inside"
# expand = { chain = ["()", 150] }
# ///
def same():
    return same


def run(kwargs):
    return "REACHED" if same@chain@ else ""
