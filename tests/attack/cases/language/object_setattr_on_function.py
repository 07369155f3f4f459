# /// stoilo-case
# idea = "storing past every setter"
# stopped_by = "language"
# code = "STO-G101"
# goal = "inside"
# ///
def word(text=""):
    return text


def run(kwargs):
    object.__setattr__(word, "__defa" + "ults__", ("REACHED",))
    return word()
