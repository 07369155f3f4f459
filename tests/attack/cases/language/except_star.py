# /// stoilo-case
# idea = "except star"
# stopped_by = "language"
# code = "STO-G105"
# goal = "inside"
# source = "CVE-2025-22153"
# ///
class Group(ExceptionGroup):
    def split(self, condition):
        self.word.append("REACHED")
        return super().split(condition)


def run(kwargs):
    word = []
    try:
        group = Group("x", [ValueError()])
        group.word = word
        raise group
    except* ValueError:
        pass
    return word[0]
