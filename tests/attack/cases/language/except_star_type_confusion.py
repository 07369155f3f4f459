# /// stoilo-case
# idea = "except star"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# source = "CVE-2025-22153"
# ///
class Group(BaseExceptionGroup):
    def split(self, condition):
        return (ExceptionGroup("REACHED", [ValueError()]), None)


def run(kwargs):
    word = ""
    try:
        raise Group("x", [ValueError()])
    except* ValueError as found:
        word = found.message
    return word
