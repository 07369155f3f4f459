# /// stoilo-case
# idea = "subclasses of containers"
# stopped_by = "result"
# goal = "inside"
# ///
class Key(str):
    def __repr__(self):
        return "REACHED"


def run(kwargs):
    return {Key("x"): 1}
