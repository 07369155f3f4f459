# /// stoilo-case
# idea = "change an exception or instance of a library"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
def word(text=""):
    return text


def run(kwargs):
    word.__defaults__ = ("REACHED",)
    return word()
