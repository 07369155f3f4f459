# /// stoilo-case
# idea = "format attribute walk"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    text = "{0:{1.__code__.co_argcount}}".format(7, run)
    return "REACHED" if text == "7" else ""
