# /// stoilo-case
# idea = "metaclasses"
# stopped_by = "gate"
# code = "STO-G105"
# goal = "inside"
# ///
class Meta(type):
    def __instancecheck__(cls, value):
        return True


class A(**{"metaclass": Meta}):
    pass


def run(kwargs):
    return "REACHED" if isinstance(1, A) else ""
