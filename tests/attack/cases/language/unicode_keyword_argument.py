# /// stoilo-case
# idea = "unicode forms of a name"
# stopped_by = "gate"
# code = "STO-P020"
# goal = "inside"
# ///
def names(**found):
    return found


def run(kwargs):
    return "REACHED" if "__class__" in names(__ｃlass__=1) else ""
