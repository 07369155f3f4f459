# /// stoilo-case
# idea = "except star"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# source = "CVE-2025-22153"
# ///
class Mixin:
    def derive(self, errors):
        made = ExceptionGroup("x", errors)
        made.split = lambda kind: (ExceptionGroup("REACHED", [ValueError()]), None)
        return made


class Group(Mixin, ExceptionGroup):
    pass


def run(kwargs):
    word = ""
    try:
        raise Group("x", [ValueError(), KeyError(), TypeError()])
    except* KeyError:
        word = ""
    except* TypeError as found:
        word = found.message
    return word
