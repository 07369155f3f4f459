# /// stoilo-case
# idea = "special methods that libraries trust"
# stopped_by = "gate"
# code = "STO-G105"
# goal = "inside"
# ///
class Space(dict):
    def __setitem__(self, name, value):
        dict.__setitem__(self, name, "REACHED")


class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return Space()


class A(metaclass=Meta):
    pass


def run(kwargs):
    return A.__qualname__
