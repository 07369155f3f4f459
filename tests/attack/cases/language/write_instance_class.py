# /// stoilo-case
# idea = "change an exception or instance of a library"
# stopped_by = "gate"
# code = "STO-G101"
# goal = "inside"
# ///
class A:
    pass


class B:
    def say(self):
        return "REACHED"


def run(kwargs):
    a = A()
    a.__class__ = B
    return a.say()
