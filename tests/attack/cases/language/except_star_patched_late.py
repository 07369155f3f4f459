# /// stoilo-case
# idea = "except star"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# source = "CVE-2025-22153"
# ///
class Group(ExceptionGroup):
    pass


def patch():
    Group.split = lambda self, kind: (ExceptionGroup("REACHED", [ValueError()]), None)
    return ValueError


def run(kwargs):
    word = ""
    try:
        raise Group("x", [ValueError()])
    except* KeyError:
        word = ""
    except* patch() as found:
        word = found.message
    return word
