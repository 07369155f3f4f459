# /// stoilo-case
# idea = "format with own objects"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
def run(kwargs):
    text = "{0[0].__code__.co_consts}".format([run])
    return "REACHED" if "co_consts" in text else ""
