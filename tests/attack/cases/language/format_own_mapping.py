# /// stoilo-case
# idea = "format with own objects"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
class Names(dict):
    def __missing__(self, name):
        return run


def run(kwargs):
    text = "{anything.__globals__}".format_map(Names())
    return "REACHED" if "__builtins__" in text else ""
