# /// stoilo-case
# idea = "subclasses of containers"
# stopped_by = "result"
# goal = "inside"
# ///
class Sly(tuple):
    def __repr__(self):
        return "REACHED"

    __str__ = __repr__


def run(kwargs):
    return Sly((1,))
