# /// stoilo-case
# idea = "attributes as a dictionary"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
class A:
    pass


def run(kwargs):
    getter = vars(A)["__di" + "ct__"]
    return "REACHED" if getter else ""
