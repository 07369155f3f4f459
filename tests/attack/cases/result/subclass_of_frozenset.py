# /// stoilo-case
# idea = "subclasses of plain types"
# stopped_by = "result"
# goal = "inside"
# ///
class Sly(frozenset):
    def __repr__(self):
        return "REACHED"

    __str__ = __repr__


def run(kwargs):
    return Sly({1})
